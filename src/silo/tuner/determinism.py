"""Deterministic mode: the configs of a space that give the same bits as its first config.

Measurements differ from run to run and from rank to rank, so decisions based on them must not change results. If a
kernel sums, its first config is used and nothing is measured. If it computes every element by itself, blocks, warps and
stages are free (PyTorch Inductor, too, tunes these kernels in its deterministic mode).
"""

from __future__ import annotations

from collections.abc import Sequence

from silo.core.code_facts import Numerics
from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.plugins import declared_options
from silo.core.values import identity_of

__all__ = ["same_bits"]


def same_bits(configs: Sequence[Config], numerics: Sequence[Numerics | str]) -> tuple[Decision, ...]:
    """Decides for each config whether its results surely equal the first config's, with the reason. Pure.

    ``numerics`` are the kernel's numerics with each config, or the error of a config that does not compile.
    """
    return tuple(
        Accepted("the first config") if place == 0 else _same((configs[0], numerics[0]), (config, numerics[place]))
        for place, config in enumerate(configs)
    )


def _same(first: tuple[Config, Numerics | str], other: tuple[Config, Numerics | str]) -> Decision:
    base, own = first[1], other[1]
    for what, found in (("the first config", base), ("it", own)):
        if isinstance(found, str):
            return Rejected(f"{what} does not compile: {found}")
        if found.ordered:
            return Rejected(f"the kernel has {' and '.join(found.ordered)}, so the order of summing may be another")
    if isinstance(base, str) or isinstance(own, str) or base.stored != own.stored:
        return Rejected("it stores other values than the first config")
    ours, theirs = first[0].as_dict(), other[0].as_dict()
    for name in sorted({option.name for option in declared_options() if option.arithmetic}):
        if identity_of(ours.get(name)) != identity_of(theirs.get(name)):
            return Rejected(f"{name} changes how it computes")
    return Accepted("every element is computed by itself, as with the first config")
