"""Compiling and launching CuTe kernels by Silo, beside the DSL itself: ``python -m bench.cute``."""
