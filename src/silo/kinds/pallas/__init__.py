"""Pallas kernels: ``front`` reads them; the other modules export, load and check them with the installed jax."""
