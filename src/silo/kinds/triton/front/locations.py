"""``loc(...)`` in MLIR text: the source line of each operation."""

from __future__ import annotations

import re

__all__ = ["Locations"]

_ALIAS = re.compile(r"^(#loc[0-9]*) = loc\((.*)\)[ \t]*$", re.MULTILINE)
_FILE = re.compile(r'"((?:[^"\\\n]|\\.)*)":([0-9]+)(?::[0-9]+)?')
_REFERENCE = re.compile(r"#loc[0-9]*")
_MAX_FRAMES = 64

# Functions of Triton's own library are inlined everywhere; what matters then is the line that called them.
_LIBRARY = re.compile(r"[/\\]triton[/\\](?:language|experimental)[/\\]")


class Locations:
    """Resolves locations, aliases included, to ``file:line``. Alias lines stand before and after the module."""

    def __init__(self, text: str) -> None:
        self._aliases = {match.group(1): match.group(2) for match in _ALIAS.finditer(text)}
        self._resolved: dict[str, str] = {}
        self._known: dict[str, list[str]] = {}
        self._depth = 0

    def __bool__(self) -> bool:
        return bool(self._aliases)

    def resolve(self, text: str) -> str:
        """``file:line`` for what stands inside ``loc(...)``; "" where it names no file."""
        known = self._resolved.get(text)
        if known is None:
            places = self._places(text)
            users = [place for place in places if not _LIBRARY.search(place)]
            known = (users or places or [""])[0]
            self._resolved[text] = known
        return known

    def _places(self, text: str) -> list[str]:
        # Files and references in order: for callsite(callee at caller) the innermost frame comes first.
        found: list[tuple[int, list[str]]] = [
            (match.start(), [f"{match.group(1)}:{match.group(2)}"]) for match in _FILE.finditer(text)
        ]
        found += [(match.start(), self._alias(match.group())) for match in _REFERENCE.finditer(text)]
        found.sort(key=lambda item: item[0])
        return [place for _, places in found for place in places][:_MAX_FRAMES]

    def _alias(self, name: str) -> list[str]:
        if name not in self._known:
            self._known[name] = []  # what a damaged text that refers to itself gets
            self._depth += 1
            if self._depth <= _MAX_FRAMES:
                self._known[name] = self._places(self._aliases.get(name, ""))
            self._depth -= 1
        return self._known[name]
