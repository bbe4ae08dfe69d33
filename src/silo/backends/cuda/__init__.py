"""Device plug-in: NVIDIA GPUs through their driver."""
