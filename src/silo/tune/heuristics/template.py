"""Templates: kernels whose blocks are written in; only warps and stages are chosen."""

from __future__ import annotations

from silo.core.config import Config
from silo.core.target import Target
from silo.tune.heuristics.candidates import Candidates, Draft
from silo.tune.heuristics.target_facts import TargetFacts

__all__ = ["template"]


def template(target: TargetFacts | Target | str, *, num_warps: int, num_stages: int) -> Candidates:
    """The one config of a template.

    >>> print(template("cuda:sm_90", num_warps=8, num_stages=3).configs[0])
    num_stages=3, num_warps=8
    """
    draft = Draft("template")
    draft.add(Config.of(num_warps=num_warps, num_stages=num_stages), "the template's own warps and stages")
    return draft.done().for_target(TargetFacts.of(target))
