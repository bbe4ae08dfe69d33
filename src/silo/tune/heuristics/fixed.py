"""Fixed configs: somebody decided already."""

from __future__ import annotations

from collections.abc import Mapping

from silo.core.config import Config
from silo.core.values import Value
from silo.tune.heuristics.candidates import Candidates, Draft

__all__ = ["fixed"]


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
