"""Finds the best config of a study: searches the space, records each trial, and decides the winner by statistics."""
