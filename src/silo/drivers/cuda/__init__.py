"""NVIDIA GPUs through their driver."""
