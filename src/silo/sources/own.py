"""Which kinds of sources are Silo's own, and what their packages have: known without looking through distributions."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["own_kinds", "part_of"]

_FOLDER = os.path.dirname(__file__)  # noqa: PTH120  # pathlib costs a first launch a millisecond


@cache
def own_kinds() -> tuple[str, ...]:
    """The packages of this folder that have a module ``kind``, sorted."""
    return tuple(sorted(name for name in os.listdir(_FOLDER) if _has(name, "kind")))  # noqa: PTH208


def part_of(kind: str, part: str) -> Any:  # noqa: ANN401  # a module
    """A module of one of these packages, imported; None where it has no such module."""
    return import_module(f"silo.sources.{kind}.{part}") if _has(kind, part) else None


@cache
def _has(kind: str, part: str) -> bool:
    return os.path.isfile(f"{_FOLDER}/{kind}/{part}.py")  # noqa: PTH113
