"""A user's lookup table: configs decided elsewhere, by a kernel's text and the sizes it runs on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from silo.core.config import Config
from silo.core.values import Value
from silo.errors import SpaceError
from silo.heuristics.candidates import Candidates, Draft
from silo.heuristics.kernel_facts import SizeHints

__all__ = ["lookup", "lookup_key"]


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
    """The one config that the table has for a kernel at some sizes, or None. ``SpaceError`` for half an entry."""
    found = table.get(lookup_key(hints, source))
    if found is None:
        return None
    missing = [name for name in ("num_warps", "num_stages") if name not in found]
    if missing:
        raise SpaceError(f"the entry {dict(found)} of a lookup table lacks {', '.join(missing)}")
    draft = Draft("lookup")
    draft.add(Config.of(found), "the user's lookup table")
    return draft.done()
