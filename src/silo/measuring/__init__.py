"""Measures the configs of one study: benches, the processes that run candidates, lock files.

:mod:`silo.tuner` searches the space.
"""
