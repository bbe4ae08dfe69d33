"""Kernels compiled by other tools: their signatures as authors write them, and their binaries."""
