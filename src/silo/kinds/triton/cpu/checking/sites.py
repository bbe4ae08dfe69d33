"""Sites: the operations of a kernel that its check watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntFlag
from types import MappingProxyType

__all__ = ["Site", "SiteKind", "Use"]


class SiteKind(Enum):
    """The kinds of operations that a check watches."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    LOOP = "loop"
    ASSERT = "device_assert"
    ASSUME = "assume"
    HINT = "hint"
    GATHER = "gather"
    # The kinds below are operations whose result may be a value that kernels should not use.
    FILL = "masked load"
    DIVISION = "division"
    WRAP = "32-bit arithmetic"
    NAN = "not a number"

    @property
    def suspect(self) -> bool:
        """Whether a value of this kind is a fault only if a result depends on it."""
        return self in (SiteKind.FILL, SiteKind.DIVISION, SiteKind.WRAP, SiteKind.NAN)


class Use(IntFlag):
    """Flags that describe an access: ``enum silo_check_use`` of ``runtime/check.h``."""

    NONE = 0
    READS = 1
    WRITES = 2
    ATOMIC = 4
    ACQUIRES = 8
    RELEASES = 16


@dataclass(frozen=True, slots=True)
class Site:
    """One watched operation. ``number`` identifies it in the code.

    ``place`` is ``file:line``, or "" if the text lacks locations; then ``ordinal`` (from 1, among the operations of
    this name) identifies it in reports. ``shape`` is the shape of the tile, () for a scalar. ``roots`` are the
    positions of the arguments that an address may derive from, None for any memory. ``details`` holds the promise that
    a hint such as ``tl.multiple_of`` makes, or the message of an assertion.
    """

    number: int
    kind: SiteKind
    operation: str
    place: str
    ordinal: int
    shape: tuple[int, ...] = ()
    bytes: int = 1
    use: Use = Use.NONE
    roots: frozenset[int] | None = None
    details: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def index(self, lane: int) -> tuple[int, ...]:
        """The index within the tile of the element number ``lane``, counted in row-major order."""
        indices: list[int] = []
        for extent in reversed(self.shape):
            indices.append(lane % extent)
            lane //= extent
        return tuple(reversed(indices))
