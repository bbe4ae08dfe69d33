"""What the Triton kernels of a program compile to and decide on: kept in a bundle, served from there later.

``recording`` and ``replaying`` do so for a block; what is between Triton and a bundle is in the other modules.
"""
