"""Reads CuTe DSL kernels as sources."""
