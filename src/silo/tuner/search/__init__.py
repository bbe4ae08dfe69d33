"""Searchers, one a file."""
