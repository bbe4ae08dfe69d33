"""Choosing configs: sessions, trials, statistics."""
