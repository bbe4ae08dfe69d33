"""The kinds of kernels, one folder each: how its objects are read, compiled, loaded and checked; found by name alone.

Nothing below ``integrations`` imports a kind, and no kind imports another.
"""
