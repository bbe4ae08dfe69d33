"""``silo.cute``, and kernels of the CuTe DSL as sources."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Literal, TypeVar

from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.extents import ExtentKind, HeldExtents, shape_text
from silo.core.grids import Grid
from silo.core.search_space import DeclaredSpace, space_of
from silo.core.signature import NO_DEFAULT, Parameter, ParameterKind, Signature
from silo.core.space import Space
from silo.core.specialization import Specialization
from silo.core.values import Value, digest
from silo.core.variant import Variant
from silo.errors import ArgumentError, SourceError, SpaceError
from silo.kinds.cute.front.cute_installation import decorated_as
from silo.kinds.cute.front.cute_parameters import Passed, declared_parameters
from silo.kinds.cute.front.cute_specialize import constant_value, plain_function, reached_from, specialize
from silo.kinds.cute.front.wrapping import Wrapped, Wrapper, make_wrapper
from silo.sources.declaration import Declaration
from silo.sources.written_values import LaunchOption, LaunchOptions, read_launch_options, written_members

__all__ = ["CuteSource", "Host", "HostChoice", "Layouts", "WrittenWrapper", "cute"]

_WIDE = 1 << 31


def _reach(array: ArgumentFacts) -> int:
    """Returns the distance from the first element to the farthest one, in elements; 0 if it is unknown."""
    pairs = zip(array.shape or (), array.strides or (), strict=False)
    return sum((size - 1) * abs(step) for size, step in pairs)


class Host(Enum):
    """Which code launches the device function."""

    AUTO = "auto"  # SILO, or DSL if only the DSL's host code can make a parameter of the kernel
    SILO = "silo"  # Silo's driver, with the cubin and its launch info
    DSL = "dsl"  # the DSL's own host code, which runs as native code in this process


class HostChoice:
    """The choice of the host code that ``host="auto"`` leaves to the compiler.

    ``open``: the choice was not made yet. ``reason``: why the DSL launches; "" if Silo's driver launches.
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
    parameters of a class's ``__init__`` (``init_names``), then the names that only ``options`` reads; the last two
    groups are constants. ``passed`` are the parameters of the function, including the ``stream``, which callers do not
    pass.
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
        """Whether the DSL's own host code launches the kernel, through tvm-ffi."""
        return self.host is Host.DSL or bool(self.host_choice.reason)

    @cached_property
    def host_choice(self) -> HostChoice:
        """The choice of the host code, which is open if the compiler has to make it.

        It is open only if the author's function takes a stream, because the DSL's host code needs a stream to launch
        on.
        """
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
        """Empty: the DSL lacks heuristics."""
        return {}

    @property
    def exact(self) -> frozenset[str]:
        """Empty: the code depends on the exact value of no scalar, only on Constexprs."""
        return frozenset()

    def constants_of(self, config: Config, specialization: Specialization) -> Mapping[str, Value]:
        """Returns an empty mapping: no constant follows from the config alone."""
        del config, specialization
        return {}

    @property
    def extents(self) -> HeldExtents | None:
        """The shape and strides of every tensor or, for dynamic layouts, the facts that the code assumes of them."""
        return self._extents

    @cached_property
    def _extents(self) -> HeldExtents | None:
        kind = ExtentKind.LAYOUT if self.layouts is Layouts.STATIC else ExtentKind.DYNAMIC
        pointers = {pointer.name for pointer in self.passed if pointer.pointer}
        names = [
            parameter.name
            for parameter in self.signature.parameters
            if parameter.kind in (ParameterKind.POINTER, ParameterKind.ANY) and parameter.name not in pointers
        ]
        return HeldExtents(tuple((name, kind) for name in names)) if names else None

    def specialize(self, arguments: Mapping[str, ArgumentFacts]) -> tuple[Signature, Specialization]:
        """Returns the typed signature and the specialization of one call. Raises ArgumentError."""
        if self.layouts is Layouts.STATIC:
            for name, argument in arguments.items():
                if argument.shape is not None and 0 in argument.shape:
                    raise ArgumentError(
                        f"{self.name}: {name} has no elements (shape {shape_text(argument.shape)}), and the CuTe DSL "
                        'has no static layout for that: leave the call out, or use layouts="dynamic"'
                    )
                if _reach(argument) >= _WIDE:
                    raise ArgumentError(
                        f"{self.name}: {name} reaches over {_reach(argument)} elements, and static layouts compute "
                        'offsets in 32 bits: use layouts="dynamic"'
                    )
        return specialize(self.name, self.signature, arguments)

    def constant(self, value: object) -> Value:
        """Returns the value of an argument for a Constexpr. Raises SourceError if it lacks a canonical form."""
        try:
            return constant_value(value)
        except TypeError as error:
            raise SourceError(f"{self}: {error}") from None

    def wrapper(self, variant: Variant) -> Wrapper:
        """Returns the host function for one variant, with the arguments for tracing it.

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


_Choice = TypeVar("_Choice", Host, Layouts)


def cute(
    function: object,
    *,
    signature: str | Mapping[str, Value] | None = None,
    block: LaunchOption | None = None,
    cluster: LaunchOption | None = None,
    smem: int | str | Callable[[Any], object] | None = None,
    host: Literal["auto", "silo", "dsl"] = "auto",
    layouts: Literal["static", "dynamic"] = "static",
    space: Mapping[str, Iterable[Value]] | Iterable[Config | Mapping[str, Value]] | DeclaredSpace | None = None,
    grid: Callable[[Any], object] | Sequence[int] | Grid | None = None,
    key: Sequence[str] = (),
    name: str | None = None,
    release_gil: bool = True,
) -> Any:  # noqa: ANN401  # a kernel, called as the function declares
    """Makes a Silo kernel from a CuTe DSL one.

    Args:
        function: a ``@cute.kernel`` function, which Silo launches once with the call's grid; or the host code of the
            launch: a ``@cute.jit`` function, an object whose ``__call__`` is one, or a class of such objects. The
            parameters of a class's ``__init__`` are constants, which a call or a config sets.
        signature: facts missing from the annotations, ``"x: in *fp32, out: out, n: i32, TILE: constexpr"`` or a
            mapping: the effect on an array (``in``, ``out``, ``inout``), its dtype, the width of a scalar, and
            constants. Other parameters are as annotated; an array counts as read and written.
        block: threads of a block: a number, the name of a constant, up to three of these, or a function of the
            constants. A ``@cute.kernel`` needs it.
        cluster: blocks of a cluster, in the same form.
        smem: bytes of dynamic shared memory; computed by the DSL by default.
        host: ``silo``: the driver launches the device code, without any part of the DSL. ``dsl``: the DSL's own host
            code launches it, for kernels with parameters that only this code can make; it needs the DSL's library, and
            consent. ``auto``: ``silo`` if it can make every parameter, else ``dsl`` if the host function takes a
            stream; one line of the log has the reason.
        layouts: ``static``: shapes and strides are part of the code, which is compiled for each. ``dynamic``: they are
            passed with each call.
        space: as for :func:`silo.kernel`; its values are Constexprs, parameters of ``__init__``, or names that
            ``block``, ``cluster`` and ``smem`` use.
        grid: as for :func:`silo.kernel`; it counts blocks, even with clusters.
        key: as for :func:`silo.kernel`.
        name: the kernel's name; its function's name by default.
        release_gil: as for :func:`silo.kernel`.

    Raises:
        SourceError: another kind of function, a function without source, or a signature that contradicts it.
        SpaceError: the space is invalid.
        TraceError: the grid, or a launch option, cannot be traced to an expression.
    """
    written, called, method = _read(function)
    plain = plain_function(getattr(called, "__func__", called))
    made_name = name or _name_of(function)
    location = _location(made_name, plain)
    where = f"{made_name} ({location})"
    declared = declared_parameters(where, called, written_members(where, signature or {}), method=method)
    init = _init_parameters(where, function) if written is WrittenWrapper.CLASS else ()
    constants = [
        parameter.name for parameter in (*declared.parameters, *init) if parameter.kind is ParameterKind.CONSTEXPR
    ]
    try:
        made_space = space if space is None or isinstance(space, DeclaredSpace) else Space.of(space)
        configs = () if made_space is None else space_of(made_space).configs()
    except SpaceError as error:
        raise SpaceError(f"{where}: {error}") from error
    chosen = [name for config in configs for name, _ in config.values]
    options = read_launch_options(
        where, tuple(dict.fromkeys((*constants, *chosen))), block=block, cluster=cluster, smem=smem
    )
    if written is WrittenWrapper.KERNEL and options.block is None:
        raise SourceError(f"{where}: how many threads has a block? Give block=, for example block=128")
    if written is not WrittenWrapper.KERNEL and any(parameter.keyword for parameter in declared.passed):
        names = ", ".join(parameter.name for parameter in declared.passed if parameter.keyword)
        raise SourceError(f"{where}: {names} can be passed by keyword only; make it a parameter by position")
    parameters = (*declared.parameters, *init)
    source = CuteSource(
        name=made_name,
        signature=Signature((*parameters, *_launch_constants(where, parameters, options))),
        function=function,
        written=written,
        location=location,
        passed=declared.passed,
        host=_choice(where, "host", Host, host),
        layouts=_choice(where, "layouts", Layouts, layouts),
        options=options,
        stream=declared.stream,
        init_names=tuple(parameter.name for parameter in init),
    )
    return Declaration(
        source=source,
        space=made_space,
        key=tuple(key),
        grid=grid,
        release_gil=release_gil,
    )


def _read(function: object) -> tuple[WrittenWrapper, Any, bool]:
    """Returns the form of the author's code, the function that is called, and whether it is a method."""
    match decorated_as(function):
        case "kernel":
            return WrittenWrapper.KERNEL, function, False
        case "jit":
            return WrittenWrapper.HOST, function, False
        case None:
            pass
    call = getattr(function if inspect.isclass(function) else type(function), "__call__", None)  # noqa: B004
    if decorated_as(call) == "jit":
        return (WrittenWrapper.CLASS if inspect.isclass(function) else WrittenWrapper.HOST), call, True
    name = getattr(function, "__name__", type(function).__name__)
    raise SourceError(
        f"{name} is not a kernel of the CuTe DSL: give silo.cute a function with @cute.kernel or @cute.jit, or an "
        "object whose __call__ has @cute.jit"
    )


def _name_of(function: Any) -> str:  # noqa: ANN401
    name: str = function.__qualname__ if hasattr(function, "__qualname__") else type(function).__qualname__
    return name.rpartition("<locals>.")[2]


def _location(name: str, plain: Any) -> str:  # noqa: ANN401
    """Returns ``file:line``. Raises SourceError if the source, which the DSL needs, cannot be read."""
    code = plain.__code__
    try:
        inspect.getsource(plain)
    except (OSError, TypeError) as error:
        raise SourceError(
            f"{name} has no source ({code.co_filename}), and the CuTe DSL compiles a kernel from its source: write it "
            "to a file and import it from there; a notebook cell will do"
        ) from error
    return f"{code.co_filename}:{code.co_firstlineno}"


def _init_parameters(where: str, kind: Any) -> tuple[Parameter, ...]:  # noqa: ANN401
    """Returns the parameters of a class's ``__init__``, all of which are constants."""
    parameters: list[Parameter] = []
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise SourceError(f"{where}: *{parameter.name} of __init__ stands for any number of parameters; name each")
        try:
            default = NO_DEFAULT if parameter.default is parameter.empty else constant_value(parameter.default)
        except TypeError as error:
            raise SourceError(f"{where}: the default of {parameter.name}: {error}") from None
        parameters.append(Parameter(parameter.name, ParameterKind.CONSTEXPR, default=default))
    return tuple(parameters)


def _launch_constants(where: str, parameters: Sequence[Parameter], options: LaunchOptions) -> list[Parameter]:
    """Returns a constant for each name that launch options read and that is not a parameter of the function."""
    by_name = {parameter.name: parameter for parameter in parameters}
    for name in options.names:
        if name in by_name and by_name[name].kind is not ParameterKind.CONSTEXPR:
            raise SourceError(
                f"{where}: a launch option reads {name}, which each call passes, and it is part of the code: make it a "
                "Constexpr"
            )
    return [Parameter(name, ParameterKind.CONSTEXPR) for name in options.names if name not in by_name]


def _choice(where: str, label: str, kind: type[_Choice], value: str) -> _Choice:
    try:
        return kind(value)
    except ValueError:
        choices = " or ".join(repr(member.value) for member in kind)
        raise SourceError(f"{where}: {label}={value!r}; it is {choices}") from None
