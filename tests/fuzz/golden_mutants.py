"""The mutants of the golden data: of committed bundles, made by their seeds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

from .golden import Case
from .reader_corpus import golden_corpus
from .readers import mutants, verdict_on

__all__ = ["reader_mutants"]

_corpus = cache(golden_corpus)


def reader_mutants(first: int, last: int) -> Iterator[Case]:
    """The mutants of these seeds."""
    for seed, what, data, memory in mutants(first, last, _corpus()):
        content = memory.to_bytes(8, "little") + data
        yield Case(seed, content, f"seed {seed}, {what.strip('_')}", partial(verdict_on, data, memory))
