"""The times of the emulator that runs Metal kernels on a CPU."""
