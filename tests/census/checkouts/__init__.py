"""Runs the kernels of checkouts of other projects with guessed arguments: Silo against Triton's interpreter."""
