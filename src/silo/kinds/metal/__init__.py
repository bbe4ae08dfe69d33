"""Metal kernels: ``front`` reads texts; the modules beside it compile them for CPUs and hand them to Apple's GPUs."""
