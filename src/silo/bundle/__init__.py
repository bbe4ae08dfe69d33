"""Reads, writes, verifies, signs, slices and joins bundles (``.silo`` files)."""
