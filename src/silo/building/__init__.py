"""Compiles and loads declared kernels, each with a config that the caller has chosen."""
