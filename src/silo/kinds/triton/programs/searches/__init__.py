"""Searches of Triton's tuners in unchanged programs: compiles configs ahead of the tuner, and shows progress."""
