"""Measures configs of one study: benches, the processes that run candidates, lock files.

The search itself is elsewhere.
"""
