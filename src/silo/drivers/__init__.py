"""Device drivers, one folder each: they list this machine's devices and load code. No driver imports another one."""
