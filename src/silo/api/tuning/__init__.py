"""Tuning on cases, and what was kept of it."""
