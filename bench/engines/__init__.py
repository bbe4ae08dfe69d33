"""Triton kernels of serving engines, called by the engines' functions: recorded over a warm-up, then served frozen."""
