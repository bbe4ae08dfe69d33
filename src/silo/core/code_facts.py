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
    """The operations of a kernel along its block dimensions of length ``length``.

    ``limits`` names the arguments that bound the dimension, for example ``n`` in ``offsets < n``. ``reduced`` and
    ``scanned``: there are reductions or scans along it; ``stepped``: a loop runs over it; ``placed``: programs start at
    multiples of the length.
    """

    length: int
    limits: tuple[str, ...] = ()
    reduced: bool = False
    scanned: bool = False
    stepped: bool = False
    placed: bool = False


@dataclass(frozen=True, slots=True)
class Traits:
    """The number of operations of each kind in a kernel, and its block dimensions by their length."""

    loads: int
    stores: int
    atomics: int
    dots: int
    reductions: int
    scans: int
    blocks: Mapping[int, BlockTraits]


@dataclass(frozen=True, slots=True)
class Numerics:
    """The facts, besides the arguments, that decide the results of a kernel.

    ``ordered`` lists the operations whose result depends on the grouping of elements, each described in words with a
    count; if empty, every element is computed alone. ``stored`` has a digest of each store in the code: of the
    computation of its address and its value, without source positions.
    """

    ordered: tuple[str, ...]
    stored: frozenset[str]


class CodeFacts:
    """The facts about one variant's code.

    In this base class every fact is unknown. A compiler that can read facts from code returns a subclass.

    Each fact is computed at its first use. Raises ``SourceError`` if the code cannot be read.

    >>> CodeFacts().effects, CodeFacts().numerics
    ({}, None)
    """

    @property
    def effects(self) -> Mapping[str, Effect]:
        """The kernel's effect through each pointer and descriptor, by parameter.

        A parameter that is missing counts as ``BOTH``.
        """
        return {}

    @property
    def shows_its_memory(self) -> Decision:
        """Accepted if the code shows that all memory that the kernel accesses belongs to its arguments."""
        return Accepted()

    @property
    def traits(self) -> Traits | None:
        """The numbers of the code's operations by kind; None if unknown."""
        return None

    @property
    def numerics(self) -> Numerics | None:
        """The facts that decide the bits of the code's results; None if unknown."""
        return None


@dataclass(frozen=True, slots=True)
class Lowered:
    """The result of a compiler's front end for one variant: the job, and the facts about its code."""

    job: CompileJob
    facts: CodeFacts = CodeFacts()  # noqa: RUF009  # holds nothing
