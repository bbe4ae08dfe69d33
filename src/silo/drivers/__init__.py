"""Device drivers, one folder each: the devices of this machine and the loading of code. No driver imports another."""
