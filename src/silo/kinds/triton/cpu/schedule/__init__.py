"""The scheduler: which operations share a loop nest, and which values are stored in buffers."""
