"""Triton kernels for the CPU: TTIR is lowered to C text, which is built into a shared object.

This package loads no code; ``silo.drivers.cpu`` loads and launches the objects.
"""
