"""Whether a random kernel keeps the promise of ``cpu_elements_apart``, by its text: "no" where that is unclear."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .program import Kernel, Node, names_in

__all__ = ["keeps_apart"]

_ACCESS = re.compile(r"tl\.(load|store|atomic_\w+)\((p\d+) \+ ")


def keeps_apart(kernel: Kernel) -> bool:
    """Whether each memory that is written is reached by one store or atomic alone, or at one place by all, in no loop.

    Stores name no place twice (``memory.store``), and each program has memory of its own to write.
    """
    lines = list(_lines(kernel.nodes, looped=False))
    return all(
        _is_apart(lines, {p.name for p in kernel.parameters if p.storage == storage.name})
        for storage in kernel.storages.values()
        if storage.written
    )


def _lines(nodes: list[Node], *, looped: bool) -> Iterator[tuple[str, bool]]:
    for node in nodes:
        yield from ((line, looped) for line in node.lines)
        inside = looped or node.lines[0].startswith(("for ", "while "))
        for body in (node.body, node.otherwise):
            yield from _lines(body or [], looped=inside)


def _is_apart(lines: list[tuple[str, bool]], pointers: set[str]) -> bool:
    found: list[tuple[str, str, str]] = []
    for line, looped in lines:
        mentions = sum(1 for name in re.findall(r"[A-Za-z_]\w*", line) if name in pointers)
        if not mentions or "_region_" in line:
            continue
        accesses = [match for match in _ACCESS.finditer(line) if match[2] in pointers]
        if looped or len(accesses) != mentions:
            return False
        found += [(match[1], match[2], _place(line[match.end() :])) for match in accesses]
    writes = [kind for kind, _, _ in found if kind != "load"]
    if len(found) <= 1:
        return True
    plain = all(kind in {"load", "store"} for kind, _, _ in found)
    same = len({(pointer, place) for _, pointer, place in found}) == 1
    return plain and same and len(writes) <= 1 and not names_in(found[0][2]) & _COMPUTED


# Names that may stand for numbers which a place must not depend on, other than the tile's own indices.
_COMPUTED = frozenset({"tl"})


def _place(text: str) -> str:
    """The text up to the end of the first argument."""
    depth = 0
    for at, letter in enumerate(text):
        if letter in "([":
            depth += 1
        elif letter in ")]" and depth:
            depth -= 1
        elif letter == ")" or (letter == "," and not depth):
            return text[:at]
    return text
