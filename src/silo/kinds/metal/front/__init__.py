"""Reads kernels in Metal Shading Language, and defines ``silo.metal``."""
