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
    """The operations of a kernel along blocks of one length.

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
    """The facts besides its arguments on which a kernel's results depend.

    ``ordered`` are operations whose result depends on how elements are grouped, in words and counted; empty: every
    element is computed alone. ``stored`` holds a digest of each store's address and value, without source positions.
    """

    ordered: tuple[str, ...]
    stored: frozenset[str]


class CodeFacts:
    """The facts about one variant's code.

    In this class every fact is unknown; a compiler that reads its code returns a subclass.

    Each fact is computed at its first use. ``SourceError`` if the code cannot be read.

    >>> CodeFacts().effects, CodeFacts().numerics
    ({}, None)
    """

    @property
    def effects(self) -> Mapping[str, Effect]:
        """The kernel's effect through each pointer and descriptor, by parameter.

        ``BOTH`` if a parameter is left out.
        """
        return {}

    @property
    def shows_its_memory(self) -> Decision:
        """Whether all memory that the kernel reaches belongs to its arguments, as far as its code shows."""
        return Accepted()

    @property
    def traits(self) -> Traits | None:
        """The kinds of its operations; None if unknown."""
        return None

    @property
    def numerics(self) -> Numerics | None:
        """The facts that decide the bits of its results; None if unknown."""
        return None


@dataclass(frozen=True, slots=True)
class Lowered:
    """The result of a compiler's front end for one variant: the job, and the facts about its code."""

    job: CompileJob
    facts: CodeFacts = CodeFacts()  # noqa: RUF009  # holds nothing
