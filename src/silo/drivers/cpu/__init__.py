"""The CPU as a device: its portable levels, and loading shared objects."""
