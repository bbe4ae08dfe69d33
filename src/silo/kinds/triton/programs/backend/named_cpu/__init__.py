"""Silo's backend once more, under the name ``cpu``: torch asks Triton's table of backends for that name.

Triton wants exactly one compiler for a target and one active driver: :mod:`..compiler` and :mod:`..driver` have them.
So this compiler takes no target, and this driver is active only where it was chosen by name.
"""
