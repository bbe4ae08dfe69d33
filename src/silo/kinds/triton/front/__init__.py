"""Reads Triton kernels: the adapter to Triton, the TTIR parser, the SSA form and memory effects. Compiles nothing."""
