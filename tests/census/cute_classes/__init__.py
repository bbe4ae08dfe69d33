"""Classes of kernels among the examples that NVIDIA ships for the CuTe DSL: how many are built as they are."""
