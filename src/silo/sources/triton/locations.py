"""``loc(...)`` in MLIR text: which line of the user's source an operation comes from."""

from __future__ import annotations

import re

__all__ = ["Locations"]

_ALIAS = re.compile(r"^(#loc[0-9]*) = loc\((.*)\)[ \t]*$", re.MULTILINE)
_FILE = re.compile(r'"((?:[^"\\\n]|\\.)*)":([0-9]+)(?::[0-9]+)?')
_REFERENCE = re.compile(r"#loc[0-9]*")
_MAX_DEPTH = 64

# Functions of Triton's own library are inlined everywhere; what matters then is the line that called them.
_LIBRARY = re.compile(r"[/\\]triton[/\\](?:language|experimental)[/\\]")


class Locations:
    """Resolves locations, aliases included, to ``file:line``. Alias lines stand before and after the module."""

    def __init__(self, text: str) -> None:
        self._aliases = {match.group(1): match.group(2) for match in _ALIAS.finditer(text)}
        self._resolved: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._aliases)

    def resolve(self, text: str) -> str:
        """``file:line`` for what stands inside ``loc(...)``; "" where it names no file."""
        known = self._resolved.get(text)
        if known is None:
            places = self._places(text, 0)
            users = [place for place in places if not _LIBRARY.search(place)]
            known = (users or places or [""])[0]
            self._resolved[text] = known
        return known

    def _places(self, text: str, depth: int) -> list[str]:
        # Files and references in order: for callsite(callee at caller) the innermost frame comes first.
        if depth > _MAX_DEPTH:
            return []
        found: list[tuple[int, list[str]]] = [
            (match.start(), [f"{match.group(1)}:{match.group(2)}"]) for match in _FILE.finditer(text)
        ]
        for match in _REFERENCE.finditer(text):
            alias = self._aliases.get(match.group())
            if alias is not None:
                found.append((match.start(), self._places(alias, depth + 1)))
            if len(found) > _MAX_DEPTH:
                break
        found.sort(key=lambda item: item[0])
        return [place for _, places in found for place in places][:_MAX_DEPTH]
