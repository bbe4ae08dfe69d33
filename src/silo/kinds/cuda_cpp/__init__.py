"""The kind ``cuda``: kernels in CUDA C++, whose types a compiler reads, and their compilers NVRTC and clang."""
