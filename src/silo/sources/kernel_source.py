"""What a kernel of this process needs of its source, whatever language it is written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.protocols import Source
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.values import Value

if TYPE_CHECKING:
    from silo.core.extents import HeldExtents

__all__ = ["KernelSource"]


class KernelSource(Source, Protocol):
    """A source that calls can be resolved against."""

    @property
    def location(self) -> str:
        """``file:line`` of its definition."""
        ...

    @property
    def heuristics(self) -> Mapping[str, Callable[..., object]]:
        """Functions that compute constexprs from the arguments, by name."""
        ...

    @property
    def exact(self) -> frozenset[str]:
        """Scalar parameters whose very value decides which code serves a call."""
        ...

    @property
    def extents(self) -> HeldExtents | None:
        """Which shapes, strides or grid decide the code: each is compiled for by itself. None: none of them does."""
        ...

    def specialize(self, arguments: Mapping[str, ArgumentFacts]) -> tuple[Signature, Specialization]:
        """The typed signature and the facts of one call. Raises ArgumentError."""
        ...

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """Constants that the config alone decides: block shapes of descriptors, by name. Raises SourceError."""
        ...

    def constant(self, value: object) -> Value:
        """The value of an argument for a constexpr parameter. Raises SourceError."""
        ...
