"""Triton kernels of serving engines, through their own functions: recorded over a warm-up, then served frozen."""
