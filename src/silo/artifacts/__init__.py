"""Compiled variants: their blob, their launch info, and the devices that run them."""
