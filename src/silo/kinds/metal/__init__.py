"""Metal kernels: ``front`` reads texts; the other modules compile them for CPUs and hand them to Apple's GPUs."""
