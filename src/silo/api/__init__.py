"""The composition root: the only package that joins compiling, tuning, storing, bundling and launching.

Import from its modules: a program that loads a bundle needs nothing of what makes kernels.
"""
