"""Blobs and records kept on disk."""
