"""Checking of Metal kernels: code that watches its own accesses, run in several schedules."""
