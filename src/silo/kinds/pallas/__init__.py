"""Pallas kernels: ``front`` reads them; the modules beside it export, load and check them through the user's jax."""
