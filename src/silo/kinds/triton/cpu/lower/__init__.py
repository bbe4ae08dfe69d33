"""Part of the CPU compiler: lower."""
