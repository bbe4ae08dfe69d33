"""Compiler plug-in: Pallas bodies to exported programs of jax, through the user's own installation of it."""
