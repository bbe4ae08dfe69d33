"""Kernels in Metal Shading Language: their text, and ``silo.metal``."""
