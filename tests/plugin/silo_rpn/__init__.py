"""Kernels of a stack machine: a kind of source, a compiler, a device and a loader that Silo does not ship."""
