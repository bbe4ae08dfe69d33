"""How often tests repeat what chance decides: kills, forks, random kernels."""

import os

__all__ = ["EVERYTHING", "repetitions"]

EVERYTHING = "SILO_TEST_ALL" in os.environ
"""Whether this is a run of ``scripts/test --all``."""


def repetitions(variable: str, usual: int, everything: int) -> int:
    """What the variable says; else ``everything`` in ``scripts/test --all``, and ``usual`` in any other run."""
    return int(os.environ.get(variable, everything if EVERYTHING else usual))
