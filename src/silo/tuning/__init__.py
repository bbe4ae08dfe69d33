"""Tuning on cases for files and bundles, on this machine and on agents, and reading the stored results."""
