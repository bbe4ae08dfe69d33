"""The kinds of kernels, one folder each: code that reads, compiles, loads and checks kernels of the kind.

A kind is a plug-in and is found by its name: only packages of ``integrations`` import a kind, and no kind imports
another.
"""
