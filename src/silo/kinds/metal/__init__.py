"""The kind ``metal``: ``front`` reads texts; the other modules compile them for CPUs or pass them to Apple's GPUs."""
