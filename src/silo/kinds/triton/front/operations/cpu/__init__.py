"""Functions that write an operation in C, element by element, or return the reason to refuse an operation.

The operations' records refer to these functions; the CPU compiler calls them.
"""
