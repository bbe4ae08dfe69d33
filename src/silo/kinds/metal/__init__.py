"""The kind ``metal``, kernels in Metal Shading Language: reads, compiles and launches them.

On CPUs the kernels run as C++ compiled by clang; on Apple's GPUs, torch or MLX launches their texts.
"""
