"""Triton kernels for GPUs, compiled by Triton's own backends."""
