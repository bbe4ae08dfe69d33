"""Spilling configs: the decision which of them to measure and which to set aside.

Code that has no registers left keeps values of a thread in local memory, which is slow. PyTorch Inductor never measures
a config that keeps more than 16 of them there (32 on AMD devices), and takes the first where all do. Here the threshold
says when a config is measured, not whether: those above it come last, the least spilling ones first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.search_space import SearchSpace
from silo.core.target import Target

__all__ = ["SpillingConfig", "Verdict", "describe_aside", "judge", "ranked", "spill_limit"]

_MOST = {"hip": 32}  # of PyTorch 2.13
_MOST_ELSEWHERE = 16
_SHARE = 3  # of those set aside, one in so many is measured in any case


@dataclass(frozen=True, slots=True)
class SpillingConfig:
    """A config and how many 32-bit values a thread of its code keeps in local memory."""

    config: Config
    spills: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a config that was set aside is measured after all, and why."""

    one: SpillingConfig
    decision: Decision


def spill_limit(target: Target, *, by_heuristic: bool, asked: int | None = None) -> int | None:
    """The most values a config may spill to be measured with the others; None: as many as it likes.

    Spaces that a heuristic made have a limit; what an author lists is measured as it stands unless he ``asked`` for
    one.

    >>> spill_limit(Target("cuda", "sm_90"), by_heuristic=True), spill_limit(Target("hip"), by_heuristic=True)
    (16, 32)
    >>> spill_limit(Target("cuda"), by_heuristic=False), spill_limit(Target("cuda"), by_heuristic=False, asked=100)
    (None, 100)
    """
    if asked is not None:
        return asked
    return _MOST.get(target.kind, _MOST_ELSEWHERE) if by_heuristic else None


def ranked(aside: Sequence[SpillingConfig], space: SearchSpace) -> tuple[SpillingConfig, ...]:
    """Those set aside, least spilling first, equal ones in the order of the space; without those it does not have."""
    order = {config.order_key: place for place, config in enumerate(space.listed)}
    mine = [one for one in aside if one.config in space]

    def rank(one: SpillingConfig) -> tuple[int, int, bytes]:
        key = one.config.order_key
        return one.spills, order.get(key, len(order)), key

    return tuple(sorted(mine, key=rank))


def judge(aside: Sequence[SpillingConfig], *, others_work: bool, evaluations: int | None = None) -> tuple[Verdict, ...]:
    """Which of the configs set aside are measured after the others. Pure.

    The least spilling third (at least one) is; where no other config works all are, one after the other, up to
    ``evaluations`` of them if that is more.

    Args:
        aside: every config above the limit, in rank order, whether it was measured by now or not.
        others_work: whether a config that was not set aside can be used.
        evaluations: how many measurements are left of the budget once the others are done; None: no end.
    """
    third = math.ceil(len(aside) / _SHARE)
    found: list[Verdict] = []
    for place, one in enumerate(aside):
        if place < third:
            decision: Decision = Accepted(f"among the {third} of {len(aside)} set aside that spill least")
        elif others_work:
            decision = Rejected(f"{place} of those set aside spill less, and other configs work")
        elif evaluations is None or place < evaluations:
            decision = Accepted("no config that spills less than the limit works")
        else:
            decision = Rejected(f"{place} of those set aside spill less, and the budget of evaluations is spent")
        found.append(Verdict(one, decision))
    return tuple(found)


def describe_aside(aside: Sequence[SpillingConfig], *, limit: int, measured: int, of: int) -> str:
    """One line about the configs above the limit, in rank order; "" where there are none.

    >>> one, two = (SpillingConfig(Config.of(BLOCK=block), block) for block in (64, 128))
    >>> describe_aside([one, two], limit=16, measured=1, of=5)
    '2 of 5 configs spill 64 to 128 values a thread to local memory (above 16): 1 measured last, 1 set aside'
    """
    if not aside:
        return ""
    low, high = aside[0].spills, aside[-1].spills
    values = str(low) if low == high else f"{low} to {high}"
    left = len(aside) - measured
    then = ", ".join([f"{measured} measured last"] * (measured > 0) + [f"{left} set aside"] * (left > 0))
    return f"{len(aside)} of {of} configs spill {values} values a thread to local memory (above {limit}): {then}"
