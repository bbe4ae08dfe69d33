"""Descriptions of compiled variants: their blobs, how they are launched, and the devices that can run them."""
