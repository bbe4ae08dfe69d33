"""Checking of Metal kernels: instrumented code that checks its own accesses, run in several schedules."""
