"""Kernels on the CPU at growing numbers of threads, beside torch: each alone, and taking turns."""
