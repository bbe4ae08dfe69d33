"""Triton kernels for the CPU: from TTIR to C text to a shared object. Loads nothing; ``silo.drivers.cpu`` does."""
