"""Triton kernels of serving engines, through the engines' own functions: recorded over a warm-up, then served frozen."""
