"""CuTe DSL kernels as sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.extents import ExtentKind, HeldExtents, shape_text
from silo.core.signature import ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import Value, digest
from silo.core.variant import Variant
from silo.errors import ArgumentError, SourceError
from silo.kinds.cute.front.cute_parameters import Passed
from silo.kinds.cute.front.cute_specialize import constant_value, reached_from, specialize
from silo.kinds.cute.front.wrapping import Wrapper
from silo.sources.launch_options import LaunchOptions

__all__ = ["CuteSource", "Host", "Layouts", "WrittenWrapper"]


_WIDE = 1 << 31


def _reach(array: ArgumentFacts) -> int:
    """How far the farthest element is from the first, in elements; 0 where that is not known."""
    pairs = zip(array.shape or (), array.strides or (), strict=False)
    return sum((size - 1) * abs(step) for size, step in pairs)


class Host(Enum):
    """What launches the device function."""

    SILO = "silo"  # the driver, with the cubin and what launch info says
    DSL = "dsl"  # the DSL's own host code, which is native code of the host


class Layouts(Enum):
    """Whether the code is made for the shapes and strides of a call."""

    STATIC = "static"
    DYNAMIC = "dynamic"


class WrittenWrapper(Enum):
    """What the author wrote."""

    KERNEL = "kernel"  # a @cute.kernel function: Silo writes the host function
    HOST = "host"  # a @cute.jit function, or an object whose __call__ is one
    CLASS = "class"  # a class of such objects: the parameters of __init__ are constants


@dataclass(frozen=True, eq=False)
class CuteSource:
    """A kernel of the CuTe DSL. Implements :class:`silo.sources.kernel_source.KernelSource`.

    ``function`` is the author's object. ``signature`` has the parameters of the function in its order, then the
    parameters of a class's ``__init__`` (``init_names``), then the names that only ``options`` reads; all but the first
    are constants. ``passed`` are the parameters of the function with the ``stream``, which no caller passes.
    """

    name: str
    signature: Signature
    function: Any
    written: WrittenWrapper
    location: str
    passed: tuple[Passed, ...]
    host: Host = Host.SILO
    layouts: Layouts = Layouts.STATIC
    options: LaunchOptions = LaunchOptions()  # noqa: RUF009  # a frozen value
    stream: str | None = None
    init_names: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Always ``cute``."""
        return "cute"

    def __str__(self) -> str:
        return f"{self.name} ({self.location})"

    @property
    def written_by_silo(self) -> bool:
        """Whether Silo writes the host function."""
        return self.written is WrittenWrapper.KERNEL

    @property
    def in_library(self) -> bool:
        """Whether the DSL's own host code launches it, through tvm-ffi."""
        return self.host is Host.DSL

    @property
    def fingerprint(self) -> str:
        """sha256 over the kernel, what it calls and reads, and how it is launched; free of paths."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        try:
            code = reached_from(self.function)
        except SourceError as error:
            raise SourceError(f"{self}: {error}") from error
        how = [self.written.value, self.host.value, self.layouts.value, self.options.to_json()]
        return digest("cute-source/1", [self.name, self.signature.to_json(), how, code])

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
        """The shape and the strides of every tensor, or what code for dynamic layouts may assume of them."""
        return self._extents

    @cached_property
    def _extents(self) -> HeldExtents | None:
        kind = ExtentKind.LAYOUT if self.layouts is Layouts.STATIC else ExtentKind.DYNAMIC
        pointers = {one.name for one in self.passed if one.pointer}
        names = [
            one.name
            for one in self.signature.parameters
            if one.kind in (ParameterKind.POINTER, ParameterKind.ANY) and one.name not in pointers
        ]
        return HeldExtents(tuple((name, kind) for name in names)) if names else None

    def specialize(self, arguments: Mapping[str, ArgumentFacts]) -> tuple[Signature, Specialization]:
        """The typed signature and the facts of one call. Raises ArgumentError."""
        if self.layouts is Layouts.STATIC:
            for name, one in arguments.items():
                if one.shape is not None and 0 in one.shape:
                    raise ArgumentError(
                        f"{self.name}: {name} has no elements (shape {shape_text(one.shape)}), and the CuTe DSL has no "
                        'static layout for that: leave the call out, or use layouts="dynamic"'
                    )
                if _reach(one) >= _WIDE:
                    raise ArgumentError(
                        f"{self.name}: {name} reaches over {_reach(one)} elements, and static layouts compute "
                        'offsets in 32 bits: use layouts="dynamic"'
                    )
        return specialize(self.name, self.signature, arguments)

    def constant(self, value: object) -> Value:
        """The value of an argument for a Constexpr; ``SourceError`` where it has no canonical form."""
        try:
            return constant_value(value)
        except TypeError as error:
            raise SourceError(f"{self}: {error}") from None

    def wrapper(self, variant: Variant) -> Wrapper:
        """The host function for one variant, and what to trace it with.

        Called and traced while ``silo.kinds.cute.front.cute_installation.FRONT_END`` is held. Raises SourceError,
        ToolchainError,
        and CompileError for what one config asks for and no launch has.
        """
        from silo.kinds.cute.front.wrapping import Wrapped, make_wrapper  # noqa: PLC0415  # imports the DSL

        wrapped = Wrapped(
            name=self.name,
            location=self.location,
            function=self.function,
            passed=self.passed,
            options=self.options,
            stream=self.stream,
            init_names=self.init_names,
            written_by_silo=self.written_by_silo,
            in_library=self.in_library,
        )
        return make_wrapper(wrapped, variant)
