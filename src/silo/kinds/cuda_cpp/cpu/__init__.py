"""CUDA C++ kernels on the CPU: clang compiles the unchanged text, and the threads of a block run as fibers."""
