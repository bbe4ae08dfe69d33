"""Records the compiled code and the decisions of a program's Triton kernels in a bundle, and serves them from it later.

``recording`` and ``replaying`` do this for a block of code; the other modules connect Triton and a bundle.
"""
