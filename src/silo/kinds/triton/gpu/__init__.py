"""Triton kernels for GPUs, compiled by Triton's own back ends."""
