"""Compiled variants: blob, launch info, which device runs them."""
