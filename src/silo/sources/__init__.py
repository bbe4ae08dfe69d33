"""Sources: kernels before compilation."""
