"""Apple's GPUs, through torch or MLX."""
