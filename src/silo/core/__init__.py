"""The value types and pure functions that all other packages use: without I/O, clock or environment."""
