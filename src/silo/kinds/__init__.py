"""The kinds of kernels, one folder each: code that reads, compiles, loads and checks kernels of the kind.

A kind is found by its name alone. Nothing below ``integrations`` imports a kind, and no kind imports another.
"""
