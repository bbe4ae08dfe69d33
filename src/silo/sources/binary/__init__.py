"""Compiled kernels: what their authors say of them, as sources."""
