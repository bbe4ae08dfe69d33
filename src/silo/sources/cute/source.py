"""CuTe DSL kernels as sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.extents import ExtentKind, HeldExtents
from silo.core.nodes import Node
from silo.core.signature import ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import Value
from silo.core.variant import Variant
from silo.sources.cute.wrapper import Wrapper

__all__ = ["CuteSource", "Host", "Layouts", "Written"]


class Host(Enum):
    """What launches the device function."""

    SILO = "silo"  # the driver, with the cubin and what launch info says
    DSL = "dsl"  # the DSL's own host code, which is native code of the host


class Layouts(Enum):
    """Whether the code is made for the shapes and strides of a call."""

    STATIC = "static"
    DYNAMIC = "dynamic"


class Written(Enum):
    """What the author wrote."""

    KERNEL = "kernel"  # a @cute.kernel function: Silo writes the host function
    HOST = "host"  # a @cute.jit function, or an object whose __call__ is one
    CLASS = "class"  # a class of such objects: the parameters of __init__ are constants


@dataclass(frozen=True, eq=False)
class CuteSource:
    """A kernel of the CuTe DSL. Implements :class:`silo.sources.kernel_source.KernelSource`.

    ``function`` is the author's object. ``signature`` has the parameters of the function in its order, then the
    parameters of a class's ``__init__``, then the names that only ``block``, ``cluster`` and ``smem`` read;
    all but the first are constants. ``stream`` is the parameter that takes a stream, which no caller passes.
    """

    name: str
    signature: Signature
    function: Any
    written: Written
    location: str
    host: Host = Host.SILO
    layouts: Layouts = Layouts.STATIC
    block: tuple[Node, ...] | None = None
    cluster: tuple[Node, ...] | None = None
    smem: Node | None = None
    stream: str | None = None

    @property
    def kind(self) -> str:
        """Always ``cute``."""
        return "cute"

    @property
    def fingerprint(self) -> str:
        """sha256 over the kernel, what it calls and reads, and how it is launched; free of paths."""
        raise NotImplementedError

    @property
    def heuristics(self) -> Mapping[str, Callable[..., object]]:
        """None: the DSL has no such thing."""
        return {}

    @property
    def exact(self) -> frozenset[str]:
        """None: a value that decides the code is a Constexpr."""
        return frozenset()

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """None."""
        del config, specialization
        return {}

    @property
    def extents(self) -> HeldExtents | None:
        """With static layouts, the shape and the strides of every array."""
        if self.layouts is Layouts.DYNAMIC:
            return None
        arrays = (ParameterKind.POINTER, ParameterKind.ANY)
        return HeldExtents(
            tuple((one.name, ExtentKind.LAYOUT) for one in self.signature.parameters if one.kind in arrays)
        )

    def specialize(self, arguments: Mapping[str, ArgumentFacts]) -> tuple[Signature, Specialization]:
        """The typed signature and the facts of one call."""
        raise NotImplementedError

    def constant(self, value: object) -> Value:
        """The value of an argument for a Constexpr parameter."""
        raise NotImplementedError

    def wrapper(self, variant: Variant) -> Wrapper:
        """The host function for one variant, and what to trace it with.

        Called and traced while ``silo.sources.cute.front_end.FRONT_END`` is held. Raises SourceError, ToolchainError.
        """
        raise NotImplementedError
