"""Kernels over lists of tensors: one launch, fixed blocks, only warps are chosen."""

from __future__ import annotations

from silo.core.config import Config
from silo.core.target import Target
from silo.tune.heuristics.candidates import Candidates, Draft
from silo.tune.heuristics.facts import Effort
from silo.tune.heuristics.target_facts import TargetFacts

__all__ = ["foreach"]


def foreach(
    target: TargetFacts | Target | str,
    effort: Effort = Effort(),  # noqa: B008  # frozen
) -> Candidates:
    """8 warps; with an exhaustive effort 1, 2, 4 and 8 (PyTorch 2.13, ``triton_heuristics.foreach``).

    >>> print(foreach("cuda:sm_90").configs[0])
    num_stages=1, num_warps=8
    """
    draft = Draft("foreach")
    for warps in (1, 2, 4, 8) if effort.exhaustive else (8,):
        draft.add(Config.of(num_warps=warps, num_stages=1), f"{warps} warps for the blocks the kernel has written in")
    return draft.done().for_target(TargetFacts.of(target))
