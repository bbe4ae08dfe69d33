"""Kernels in CUDA C++ on the CPU: clang compiles the same text, and the threads of a block are fibers that meet."""
