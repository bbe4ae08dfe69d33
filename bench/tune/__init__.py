"""Tuning in a cold process: ``python -m bench.tune``."""
