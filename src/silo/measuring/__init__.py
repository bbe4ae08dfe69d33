"""Measures the configs of one study, in this process or in separate ones, and writes lock files.

:mod:`silo.tuner` searches the space.
"""
