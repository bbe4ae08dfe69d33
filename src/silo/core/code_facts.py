"""Facts of code: effects, traits and numerics that a compiler's front end reads from a kernel's lowered form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from silo.core.decisions import Accepted, Decision
from silo.core.signature import Effect
from silo.core.variant import CompileJob

__all__ = ["BlockTraits", "CodeFacts", "Lowered", "Numerics", "Traits"]


@dataclass(frozen=True, slots=True)
class BlockTraits:
    """What a kernel does along the blocks of one length.

    ``limits`` are the arguments that the block's dimension goes up to, by name. ``reduced`` and ``scanned``: there are
    reductions and scans along it; ``stepped``: a loop goes over its dimension; ``placed``: programs start at multiples
    of the length.
    """

    length: int
    limits: tuple[str, ...] = ()
    reduced: bool = False
    scanned: bool = False
    stepped: bool = False
    placed: bool = False


@dataclass(frozen=True, slots=True)
class Traits:
    """How many operations of each kind a kernel has, and its blocks by length."""

    loads: int
    stores: int
    atomics: int
    dots: int
    reductions: int
    scans: int
    blocks: Mapping[int, BlockTraits]


@dataclass(frozen=True, slots=True)
class Numerics:
    """What a kernel's results depend on besides its arguments.

    ``ordered`` are operations whose result depends on how elements are grouped, in words and counted; none: every
    element is computed by itself. ``stored`` has, for each store, a digest of where to and of what, without positions.
    """

    ordered: tuple[str, ...]
    stored: frozenset[str]


class CodeFacts:
    """What is known of one variant's code. This class knows nothing; a compiler that reads its code gives a subclass.

    Each fact is worked out when it is first asked for. ``SourceError`` where the code cannot be read.

    >>> CodeFacts().effects, CodeFacts().numerics
    ({}, None)
    """

    @property
    def effects(self) -> Mapping[str, Effect]:
        """What the kernel does through each pointer and descriptor, by parameter; ``BOTH`` of those left out."""
        return {}

    @property
    def shows_its_memory(self) -> Decision:
        """Whether all memory that the kernel reaches lies behind its arguments, as far as its code tells."""
        return Accepted()

    @property
    def traits(self) -> Traits | None:
        """What kinds of operations it has; None where that is not known."""
        return None

    @property
    def numerics(self) -> Numerics | None:
        """What decides the bits of its results; None where that is not known."""
        return None


@dataclass(frozen=True, slots=True)
class Lowered:
    """What a compiler's front end makes of one variant: the job, and the facts of its code."""

    job: CompileJob
    facts: CodeFacts = CodeFacts()  # noqa: RUF009  # holds nothing
