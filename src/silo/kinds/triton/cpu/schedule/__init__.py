"""Part of the CPU compiler: schedule."""
