"""The time of the first launch in a fresh process: ``python -m bench.cold_start``."""
