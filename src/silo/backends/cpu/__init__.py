"""Compiler and device plug-in: Triton sources to native CPU code."""
