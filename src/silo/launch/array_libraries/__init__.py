"""Array libraries, one module each: they make the arrays of cases, and read, write, copy and restore a caller's arrays.

A library is imported when one of its arrays appears or a caller names it.
"""
