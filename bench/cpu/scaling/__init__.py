"""Kernels on the CPU at growing numbers of threads beside torch: each library alone, and both in turns."""
