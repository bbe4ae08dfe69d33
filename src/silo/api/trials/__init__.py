"""Measuring candidates: studies, benches, the process that runs them, lock files."""
