"""The kinds of kernels, one folder each: code that reads, compiles, loads and checks kernels of the kind.

A kind is imported only by its name, as a plug-in. Packages below ``integrations`` do not import a kind, and no kind
imports another.
"""
