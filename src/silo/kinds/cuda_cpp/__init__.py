"""CUDA C++ kernels: their texts, signatures by the compiler's own reading, and NVRTC and clang as compilers."""
