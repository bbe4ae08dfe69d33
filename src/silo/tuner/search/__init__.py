"""Searchers, one per module."""
