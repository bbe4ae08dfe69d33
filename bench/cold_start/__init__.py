"""What the first launch of a fresh process costs: ``python -m bench.cold_start``."""
