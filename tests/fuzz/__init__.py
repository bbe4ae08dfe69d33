"""Random Triton kernels, run by the optimized code, by the reference code and by Triton's own interpreter.

``python -m tests.fuzz FIRST LAST`` from the root of the tree; see :mod:`tests.fuzz.__main__`. One rule keeps every
comparison exact: a kernel whose results depend on the order of float operations (sums, dots) has only values whose sums
are exact in any order (:class:`.program.Exact`), and every other kernel has none of those operations. Kernels that
round their sums are a profile of their own (``rounded``), judged against a float64 shadow of the same kernel.
"""
