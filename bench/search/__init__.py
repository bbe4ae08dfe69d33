"""The searchers on recorded spaces: ``python -m bench.search``."""
