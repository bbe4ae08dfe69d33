"""Part of the CPU compiler: emit."""
