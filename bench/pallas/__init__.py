"""The cost of calling Pallas kernels by Silo, beside jax's own ways to call them."""
