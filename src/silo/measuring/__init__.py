"""Measuring configs of one study: benches, the process that runs them, lock files. Searches nothing."""
