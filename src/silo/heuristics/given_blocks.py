"""Kernels with given block sizes: in a config, in a list of configs, or in the kernel's own text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from silo.core.config import Config
from silo.core.target import Target
from silo.core.values import Value
from silo.heuristics.candidates import Candidates, Draft
from silo.heuristics.kernel_facts import TuningEffort
from silo.heuristics.target_facts import TargetFacts

__all__ = ["fixed", "foreach", "template", "user"]


def fixed(members: Mapping[str, Value] | Config) -> Candidates:
    """The one config given, as it is: constexprs and every compile option (num_ctas and maxnreg among them).

    Options that are None count as not given.

    >>> print(fixed({"BLOCK": 64, "num_warps": 4, "maxnreg": 128, "num_ctas": None}).configs[0])
    BLOCK=64, maxnreg=128, num_warps=4
    """
    config = members if isinstance(members, Config) else Config.of(members)
    draft = Draft("fixed")
    draft.add(Config(config.values, tuple(item for item in config.options if item[1] is not None)), "given")
    return draft.done()


def user(configs: Iterable[Mapping[str, Value] | Config] = ()) -> Candidates:
    """The author's list, each config once; without one, the config that sets nothing.

    >>> [str(config) for config in user([{"BLOCK": 64}, {"BLOCK": 128}, {"BLOCK": 64}]).configs]
    ['BLOCK=64', 'BLOCK=128']
    """
    draft = Draft("user")
    for members in configs:
        draft.add(members if isinstance(members, Config) else Config.of(members), "the author's own")
    if not draft.count:
        draft.add(Config(), "nothing to choose: the compiler's own defaults")
    return draft.done()


def template(target: TargetFacts | Target | str, *, num_warps: int, num_stages: int) -> Candidates:
    """The one config of a template.

    >>> print(template("cuda:sm_90", num_warps=8, num_stages=3).configs[0])
    num_stages=3, num_warps=8
    """
    draft = Draft("template")
    draft.add(Config.of(num_warps=num_warps, num_stages=num_stages), "the template's own warps and stages")
    return draft.done().for_target(TargetFacts.of(target))


def foreach(
    target: TargetFacts | Target | str,
    effort: TuningEffort = TuningEffort(),  # noqa: B008  # frozen
) -> Candidates:
    """A kernel over lists of tensors, in one launch.

    8 warps; with an exhaustive effort 1, 2, 4 and 8 (PyTorch 2.13, ``triton_heuristics.foreach``).

    >>> print(foreach("cuda:sm_90").configs[0])
    num_stages=1, num_warps=8
    """
    draft = Draft("foreach")
    for warps in (1, 2, 4, 8) if effort.exhaustive else (8,):
        draft.add(Config.of(num_warps=warps, num_stages=1), f"{warps} warps for the blocks the kernel has written in")
    return draft.done().for_target(TargetFacts.of(target))
