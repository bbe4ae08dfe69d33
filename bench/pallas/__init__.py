"""What calls of Pallas kernels cost, beside jax's own ways to call them."""
