"""Tunes the kernels of files and bundles on their cases, on this machine and on agents, and reads stored results."""
