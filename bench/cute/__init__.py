"""CuTe kernels, compiled and launched, beside the DSL itself: ``python -m bench.cute``."""
