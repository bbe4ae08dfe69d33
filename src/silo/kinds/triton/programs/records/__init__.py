"""The compiled code and the decisions of a program's Triton kernels: kept in a bundle, served from there later.

``recording`` and ``replaying`` do so for a block; the other modules connect Triton and a bundle.
"""
