"""The judge of kernels by strangers: candidates run confined, and only data leaves their processes."""
