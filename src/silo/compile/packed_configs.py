"""The configs that a build packs for a target that was not measured here. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from silo.core.config import Config
from silo.errors import SpaceError

__all__ = ["DEFAULT_CODE_BYTES", "DEFAULT_CONFIGS", "Packing", "first_of", "within_bytes"]

DEFAULT_CONFIGS = 128  # of each case: more than most spaces have, and some minutes of compiling on few cores
DEFAULT_CODE_BYTES = 64 << 20  # of each kernel and target, before compression

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Packing:
    """The most configs of each case to pack, and the most bytes of code of each kernel and target; None: no limit.

    ``everywhere``: also where a device is here and a winner was measured; else that winner alone is packed.
    """

    configs: int | None = DEFAULT_CONFIGS
    code_bytes: int | None = DEFAULT_CODE_BYTES
    everywhere: bool = False

    @classmethod
    def parse(cls, text: str | None) -> Packing:
        """What ``--configs`` says; None is the default.

        Raises ``SpaceError`` for a text that is neither a number nor ``all``.

        >>> Packing.parse("all").configs, Packing.parse("12").configs, Packing.parse(None).configs
        (None, 12, 128)
        """
        if text is None:
            return cls()
        if text != "all" and (not text.isdecimal() or int(text) < 1):
            raise SpaceError(f"--configs {text}: it is a number of configs from 1 on, or all")
        return cls(None if text == "all" else int(text), None, everywhere=True)


def first_of(
    ordered: Sequence[Config], neighbours: Callable[[Config], Iterable[Config]], limit: int | None
) -> tuple[Config, ...]:
    """At most ``limit`` of the configs, beginning with the first of ``ordered``.

    If not all fit, its neighbours follow, because it may be nearly right. Then come configs from all over the space, in
    an order unrelated to the space's own, whose first configs are alike.
    """
    if limit is None or len(ordered) <= limit:
        return tuple(ordered)
    choice = ordered[0]
    places = {config.order_key: place for place, config in enumerate(ordered)}
    near = {config.order_key for config in neighbours(choice)}

    def preference(config: Config) -> tuple[bool, bool, int, bytes]:
        key = config.order_key
        return key != choice.order_key, key not in near, places[key] if key in near else 0, hashlib.sha256(key).digest()

    return tuple(sorted(ordered, key=preference)[:limit])


def within_bytes(sizes: Iterable[tuple[T, int, Sequence[tuple[str, int]]]], limit: int | None) -> frozenset[T]:
    """Which items stay where each brings blobs (sha256 and size), equal ones once, and all together have a limit.

    Each item comes with its rank; items of rank 0 stay whatever they take, others by rank, then in the order given.
    """
    kept: set[T] = set()
    counted: set[str] = set()
    taken = 0
    for item, rank, blobs in sorted(sizes, key=lambda one: one[1]):
        new = {sha256: size for sha256, size in blobs if sha256 not in counted}
        if rank and limit is not None and taken + sum(new.values()) > limit:
            continue
        kept.add(item)
        counted |= set(new)
        taken += sum(new.values())
    return frozenset(kept)
