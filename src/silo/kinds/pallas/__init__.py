"""The kind ``pallas``: ``front`` reads kernels; the other modules export, load and check them with jax."""
