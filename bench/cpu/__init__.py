"""Kernels on the CPU beside torch and Triton's interpreter: ``python -m bench.cpu``."""
