"""Tuning on cases for files and bundles, on this machine and by agents, and reading what was kept of it."""
