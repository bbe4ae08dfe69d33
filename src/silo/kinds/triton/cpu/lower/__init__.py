"""Lowers the operations of a scheduled kernel to loops and C expressions."""
