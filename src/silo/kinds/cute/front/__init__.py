"""CuTe DSL kernels as sources."""
