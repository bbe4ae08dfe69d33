"""Block sizes that are given: in a config, in a list, in the kernel's own text, or in a user's lookup table."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from silo.core.config import Config
from silo.core.target import Target
from silo.core.values import Value
from silo.errors import SpaceError
from silo.heuristics.candidates import Candidates, Draft
from silo.heuristics.facts import SizeHints, TargetFacts, TuningEffort

__all__ = ["fixed", "foreach", "lookup", "lookup_key", "template", "user"]

# ---- Kernels with given block sizes: in a config, in a list of configs, or in the kernel's own text ----


def fixed(members: Mapping[str, Value] | Config) -> Candidates:
    """The one given config, unchanged: constexprs and every compile option (num_ctas and maxnreg among them).

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


# ---- A user's lookup table: configs decided elsewhere, by a kernel's text and the sizes it runs on ----


def lookup_key(hints: SizeHints | Mapping[str, int], source: str) -> str:
    """The key of a kernel's text (from its ``def``) at some sizes: sha256, the kernel's name left out.

    It is the key of PyTorch's ``autotune_lookup_table``, so a table made for one serves the other.

    >>> lookup_key({"x": 64}, "def f(a): pass") == lookup_key({"x": 50}, "def g(a): pass")
    True
    """
    sizes = dict(SizeHints.of(hints).sizes)
    body = re.sub(r"^def [^(]+\(", "(", source.strip(), count=1)
    return hashlib.sha256(f"{sizes}{body}".encode()).hexdigest()


def lookup(
    table: Mapping[str, Mapping[str, Value]], hints: SizeHints | Mapping[str, int], source: str
) -> Candidates | None:
    """The one config that the table has for a kernel at some sizes, or None. Raises SpaceError for half an entry."""
    found = table.get(lookup_key(hints, source))
    if found is None:
        return None
    missing = [name for name in ("num_warps", "num_stages") if name not in found]
    if missing:
        raise SpaceError(f"the entry {dict(found)} of a lookup table lacks {', '.join(missing)}")
    draft = Draft("lookup")
    draft.add(Config.of(found), "the user's lookup table")
    return draft.done()
