"""Kernels on the CPU against other ways of running them: ``python -m bench.cpu``."""
