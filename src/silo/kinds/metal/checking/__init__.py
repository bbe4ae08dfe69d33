"""Checks Metal kernels: compiles code that checks its memory accesses, and runs it with several orders of threads."""
