"""Judges kernels by unknown authors: candidates run in confined processes, which send back only data."""
