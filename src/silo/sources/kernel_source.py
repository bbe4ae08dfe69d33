"""The protocol of sources, in any language, that turn a call's arguments into a signature and a specialization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.device import Target
from silo.core.protocols import Source
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.values import Value
from silo.core.variant import Variant

if TYPE_CHECKING:
    from silo.core.compound_arguments import TupleShapes
    from silo.core.extents import HeldExtents

__all__ = ["BringsCode", "GivenCode", "KernelSource", "PrunesConfigs", "ReadsPlaces", "RunsInLibrary", "TakesTuples"]


class KernelSource(Source, Protocol):
    """A kernel before compilation that can be called: the protocol finds the signature and specialization of each call.

    A subclass overrides ``heuristics``, ``exact``, ``extents`` and ``constants_of`` only if its kernels have such
    facts; by default they are empty.
    """

    @property
    def location(self) -> str:
        """The place of the kernel's definition, as ``file:line``."""
        ...

    @property
    def heuristics(self) -> Mapping[str, Callable[..., object]]:
        """Functions that compute constexprs from the arguments, by the constexpr's name."""
        return {}

    @property
    def exact(self) -> frozenset[str]:
        """The scalar parameters whose exact value decides which code serves a call."""
        return frozenset()

    @property
    def extents(self) -> HeldExtents | None:
        """The shapes, strides or grid that decide the code: each combination is compiled separately.

        None if none of them decides the code.
        """
        return None

    def specialize(self, arguments: Mapping[str, ArgumentFacts]) -> tuple[Signature, Specialization]:
        """Returns the typed signature and the specialization of one call. Raises ArgumentError."""
        ...

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """Returns the constants that the config alone decides: block shapes of descriptors, by name.

        Raises SourceError.
        """
        del config, specialization
        return {}

    def constant(self, value: object) -> Value:
        """Returns the value of an argument for a constexpr parameter or an option. Raises SourceError."""
        ...


@runtime_checkable
class PrunesConfigs(Protocol):
    """A source whose author wrote functions that select the configs of a call."""

    def prune(self, configs: Sequence[Config], arguments: Mapping[str, object]) -> tuple[Config, ...]:
        """Returns the members of ``configs`` that a call may use, best first.

        Passes on errors of the author's functions.

        ``arguments`` are the call's arguments and options by name.
        """
        ...


@runtime_checkable
class TakesTuples(Protocol):
    """A source whose parameters take tuples of arguments."""

    def with_tuples(self, shapes: TupleShapes) -> KernelSource:
        """Returns the same kernel for tuples of these shapes, whose values become separate parameters."""
        ...


@runtime_checkable
class RunsInLibrary(Protocol):
    """A source whose kernels may be launched by a library, for example MLX, on the caller's arrays, not by a driver."""

    @property
    def in_library(self) -> bool:
        """Whether a library runs this kernel; its configs are then measured in the process that tunes."""
        ...


@runtime_checkable
class ReadsPlaces(Protocol):
    """A source that depends on values which a program may change: globals, closure variables, attributes."""

    @property
    def fingerprint(self) -> str:
        """The sha256 of the kernel and everything it reaches; see :class:`silo.core.protocols.Source`."""
        ...

    @property
    def places(self) -> tuple[object, ...]:
        """The places that were read, with their values: (holder, name, value), flattened into one tuple.

        A place is a global, a closure variable or an attribute. A holder is a dictionary that has the name as a key, or
        an object that has it as an attribute; the value is compared by identity. If the name is None, the holder is a
        container, and the value is a copy that the container must equal.
        """
        ...

    def read_again(self) -> None:
        """Reads the source again if the value of a place, or a function's text, has changed since the last reading."""
        ...

    def when_replaced(self, changed: Callable[[], None]) -> None:
        """Registers ``changed`` to be called when the text of a function that the source reaches is replaced.

        If ``changed`` is a method, its object is held weakly.
        """
        ...


@dataclass(frozen=True, slots=True)
class GivenCode:
    """Code that exists already, as a variant; ``reason`` describes its origin.

    ``generic``: the code assumes nothing about the arguments, so it serves every call with arguments of its types.
    """

    variant: Variant
    reason: str
    generic: bool


@runtime_checkable
class BringsCode(Protocol):
    """A source whose code exists already. It is not tuned and needs no case."""

    @property
    def own_targets(self) -> tuple[Target, ...]:
        """Returns the targets that the code was made for, each once."""
        ...

    def code_for(self, targets: Sequence[Target]) -> tuple[GivenCode, ...]:
        """Returns all code that runs on one of the targets, best first.

        Raises NoVariantError, with a reason for each piece of code, if none does.
        """
        ...

    def explain(self, target: Target, specialization: Specialization) -> tuple[str, ...]:
        """Returns a line for each piece of code: whether it is chosen for a call on a device, and why."""
        ...

    def code_text(self, form: str, target: str | None) -> tuple[Target, str]:
        """Returns the target and text of the first code for ``target`` that has the form ``form``, for example ``ptx``.

        With None as ``target``, code for any target counts. Raises SourceError, ToolchainError.
        """
        ...
