"""Silo: the runtime for compute kernels."""
