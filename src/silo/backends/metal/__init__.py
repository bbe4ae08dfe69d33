"""Metal kernels: the emulator, which makes code for the CPU of them, and what Apple's GPUs are given."""
