"""Part of the CPU compiler: checking."""
