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
from silo.kinds.cute.front.wrapping import Wrapped, Wrapper, make_wrapper
from silo.sources.launch_options import LaunchOptions

__all__ = ["CuteSource", "Host", "HostChoice", "Layouts", "WrittenWrapper"]


_WIDE = 1 << 31


def _reach(array: ArgumentFacts) -> int:
    """Returns the distance of the farthest element from the first, in elements; 0 if it is unknown."""
    pairs = zip(array.shape or (), array.strides or (), strict=False)
    return sum((size - 1) * abs(step) for size, step in pairs)


class Host(Enum):
    """The code that launches the device function."""

    AUTO = "auto"  # the driver; the DSL's own host code if it alone can make a parameter of the kernel
    SILO = "silo"  # the driver, with the cubin and its launch info
    DSL = "dsl"  # the DSL's own host code, which is native code of the host


class HostChoice:
    """The choice that ``host="auto"`` leaves to the compiler.

    ``open``: it is not made yet. ``reason``: the reason why the DSL launches, "" if the driver does.
    """

    __slots__ = ("open", "reason")

    def __init__(self, *, open: bool) -> None:  # noqa: A002
        self.open = open
        self.reason = ""


class Layouts(Enum):
    """Whether the code is compiled for the shapes and strides of a call, or takes them as arguments."""

    STATIC = "static"
    DYNAMIC = "dynamic"


class WrittenWrapper(Enum):
    """The form of the author's code."""

    KERNEL = "kernel"  # a @cute.kernel function: Silo writes the host function
    HOST = "host"  # a @cute.jit function, or an object whose __call__ is one
    CLASS = "class"  # a class whose objects have a @cute.jit __call__: the parameters of __init__ are constants


@dataclass(frozen=True, eq=False)
class CuteSource:
    """A kernel of the CuTe DSL. Implements :class:`silo.sources.kernel_source.KernelSource`.

    ``function`` is the author's object. ``signature`` has the parameters of the function in its order, then the
    parameters of a class's ``__init__`` (``init_names``), then the names that only ``options`` reads; all but the first
    group are constants. ``passed`` are the parameters of the function, and the ``stream``, which callers do not pass.
    """

    name: str
    signature: Signature
    function: Any
    written: WrittenWrapper
    location: str
    passed: tuple[Passed, ...]
    host: Host = Host.AUTO
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
        return self.host is Host.DSL or bool(self.host_choice.reason)

    @cached_property
    def host_choice(self) -> HostChoice:
        """The choice of the host code, which the compiler makes. Host code of the DSL needs a stream to launch on."""
        return HostChoice(open=self.host is Host.AUTO and self.stream is not None and not self.written_by_silo)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the kernel, the code and values it reaches, and its launch options; contains no paths."""
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
        """Empty: the DSL has no heuristics."""
        return {}

    @property
    def exact(self) -> frozenset[str]:
        """Empty: a value that decides the code is a Constexpr."""
        return frozenset()

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """Returns an empty mapping."""
        del config, specialization
        return {}

    @property
    def extents(self) -> HeldExtents | None:
        """The shape and the strides of every tensor, or the facts that code for dynamic layouts may assume of them."""
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
        """Returns the typed signature and the facts of one call. Raises ArgumentError."""
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
        """Returns the value of an argument for a Constexpr. Raises SourceError if it has no canonical form."""
        try:
            return constant_value(value)
        except TypeError as error:
            raise SourceError(f"{self}: {error}") from None

    def wrapper(self, variant: Variant) -> Wrapper:
        """Returns the host function for one variant, with the arguments for its trace.

        Called and traced while ``silo.kinds.cute.front.cute_installation.FRONT_END`` is held. Raises SourceError,
        ToolchainError, and CompileError for a config's launch option that no launch supports.
        """
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
