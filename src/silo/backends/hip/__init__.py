"""Device plug-in: AMD GPUs through their driver."""
