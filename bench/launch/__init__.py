"""What a launch costs the host: ``python -m bench.launch``."""
