"""Reading Triton kernels: the adapter to Triton, the TTIR parser, SSA and effects. Compiles nothing."""
