"""Makes loaded code from declared kernels: declarations, compilation, loading. Chooses no config."""
