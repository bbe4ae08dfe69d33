"""Kernel sources: reading, describing and fingerprinting kernels before they are compiled."""
