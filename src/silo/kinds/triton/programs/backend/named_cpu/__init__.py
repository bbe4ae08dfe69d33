"""Silo's backend once more, under the name ``cpu``: torch looks up that name in Triton's table of backends.

Triton requires exactly one compiler for a target and one active driver: :mod:`..compiler` and :mod:`..driver` have
them. So this compiler takes no target, and this driver is active only if it was chosen by name.
"""
