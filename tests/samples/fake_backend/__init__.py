"""A compiler, a device and a measurer that need no hardware."""
