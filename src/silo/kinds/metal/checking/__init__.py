"""Checks Metal kernels: compiles them to code that checks its own accesses, and runs it in several schedules."""
