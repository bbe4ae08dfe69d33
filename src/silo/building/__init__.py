"""From a kernel as its author declared it to loaded code: declarations, compilation, loading. Chooses no config."""
