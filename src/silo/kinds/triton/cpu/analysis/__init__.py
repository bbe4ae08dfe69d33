"""Part of the CPU compiler: analysis."""
