"""The protocol of sources that calls can be resolved against, whatever language the kernel is written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.protocols import Source
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.target import Target
from silo.core.values import Value
from silo.core.variant import Variant

if TYPE_CHECKING:
    from silo.core.extents import HeldExtents
    from silo.core.tuples import TupleShapes

__all__ = ["BringsCode", "GivenCode", "KernelSource", "PrunesConfigs", "ReadsPlaces", "RunsInLibrary", "TakesTuples"]


class KernelSource(Source, Protocol):
    """A source that calls can be resolved against. Where a class inherits from this one, it says only what it has."""

    @property
    def location(self) -> str:
        """``file:line`` of its definition."""
        ...

    @property
    def heuristics(self) -> Mapping[str, Callable[..., object]]:
        """Functions that compute constexprs from the arguments, by name."""
        return {}

    @property
    def exact(self) -> frozenset[str]:
        """Scalar parameters whose very value decides which code serves a call."""
        return frozenset()

    @property
    def extents(self) -> HeldExtents | None:
        """Which shapes, strides or grid decide the code: each is compiled for by itself. None: none of them does."""
        return None

    def specialize(self, arguments: Mapping[str, ArgumentFacts]) -> tuple[Signature, Specialization]:
        """The typed signature and the facts of one call. Raises ArgumentError."""
        ...

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """Constants that the config alone decides: block shapes of descriptors, by name. Raises SourceError."""
        del config, specialization
        return {}

    def constant(self, value: object) -> Value:
        """The value of an argument for a constexpr parameter, or of an option that a call gives. Raises SourceError."""
        ...


@runtime_checkable
class PrunesConfigs(Protocol):
    """A source whose author wrote functions that say which configs a call may use."""

    def prune(self, configs: Sequence[Config], given: Mapping[str, object]) -> tuple[Config, ...]:
        """Those of ``configs`` that a call may use, best guess first. Raises whatever the author's functions raise.

        ``given`` are the call's arguments and options by name.
        """
        ...


@runtime_checkable
class TakesTuples(Protocol):
    """A source whose parameters take tuples of arguments."""

    def with_tuples(self, shapes: TupleShapes) -> KernelSource:
        """The same kernel for tuples of such shapes, each value of which is a parameter of its own."""
        ...


@runtime_checkable
class RunsInLibrary(Protocol):
    """A source of whose code a loader may give a library's call, which takes the caller's own objects."""

    @property
    def in_library(self) -> bool:
        """Whether that is so of this one: its configs are measured in the process that tunes."""
        ...


@runtime_checkable
class ReadsPlaces(Protocol):
    """A source that is made of values in places which a program may change: globals, closures, attributes."""

    @property
    def fingerprint(self) -> str:
        """See :class:`silo.core.protocols.Source`."""
        ...

    @property
    def places(self) -> tuple[object, ...]:
        """The places with the values that were read: (holder, name, value) one behind the other.

        A holder is a dictionary that has the name as a key, or an object that has it as an attribute; the value is
        known by its identity. Without a name (None) the holder is a container, and the value an equal copy of it.
        """
        ...

    def read_again(self) -> None:
        """Read the source anew if a place has another value, or a text was replaced, since it was read."""
        ...

    def when_replaced(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` when the text of a function that the source reaches is replaced.

        The callback's object is held weakly.
        """
        ...


@dataclass(frozen=True, slots=True)
class GivenCode:
    """Code that a source brought, as a variant; ``reason`` says where it is from.

    ``generic``: it assumes nothing of the arguments, so it serves every call of its types.
    """

    variant: Variant
    reason: str
    generic: bool


@runtime_checkable
class BringsCode(Protocol):
    """A source whose code is there already: nothing is tuned, and no case is needed."""

    @property
    def own_targets(self) -> tuple[Target, ...]:
        """What the code was made for, without repetition."""
        ...

    def code_for(self, targets: Sequence[Target]) -> tuple[GivenCode, ...]:
        """All code that runs on one of the targets, the preferred first. Raises NoVariantError with every reason."""
        ...

    def explain(self, target: Target, specialization: Specialization) -> tuple[str, ...]:
        """A line for each piece of code: whether it is chosen for a call on a device, and why."""
        ...

    def code_text(self, form: str, target: str | None) -> tuple[Target, str]:
        """One form of the code as text, of the first for ``target``. Raises SourceError, ToolchainError."""
        ...
