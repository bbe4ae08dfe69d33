"""The host's time for a launch: ``python -m bench.launch``."""
