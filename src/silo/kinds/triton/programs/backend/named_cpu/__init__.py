"""Silo's backend under a second name, ``cpu``, which torch looks up in Triton's table of backends.

Triton requires exactly one compiler for a target and one active driver, and these are :mod:`..compiler` and
:mod:`..driver`. So this compiler accepts no target, and this driver is active only if it was chosen by name.
"""
