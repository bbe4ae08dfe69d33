"""Searches of Triton's tuners in unchanged programs: configs compiled ahead of the tuner, and progress shown."""
