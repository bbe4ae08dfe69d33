"""Reads and writes the result files of other tuners: one module per format."""
