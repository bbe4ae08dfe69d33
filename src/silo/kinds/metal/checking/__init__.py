"""Checks Metal kernels: compiles them to code that checks its memory accesses, and runs it in several schedules."""
