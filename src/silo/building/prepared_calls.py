"""Calls that are prepared before a launch: tuples become a parameter for each value, and arguments are set to zero."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from silo.core.argument_facts import describe
from silo.core.compound_arguments import leaves, shape_of
from silo.core.signature import NoDefault, ParameterKind
from silo.errors import ArgumentError, SourceError
from silo.launch.native import recording

if TYPE_CHECKING:
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.launch.runtime import Launcher

__all__ = [
    "TupleCall",
    "TupleLauncher",
    "ZeroingLauncher",
    "refuse_zeroing",
    "serve_tuples",
    "set_to_zero",
    "tuple_call",
]


@dataclass(frozen=True)
class TupleCall:
    """A call with tuples among its arguments.

    ``kernel`` is the kernel for tuples of these shapes. ``named`` holds the arguments by name, with each tuple replaced
    by its values. ``tuples`` are the caller's own tuples.
    """

    kernel: DeclaredKernel
    named: Mapping[str, object]
    tuples: Mapping[str, object]

    def grid(self, grid: object) -> object:
        """Returns the grid of the call. If it is a function, it also receives the tuples under their own names."""
        if not callable(grid):
            return grid
        function = cast("Callable[[Mapping[str, object]], object]", grid)

        def with_tuples(arguments: Mapping[str, object]) -> object:
            return function({**arguments, **self.tuples})

        return with_tuples


def tuple_call(kernel: DeclaredKernel, args: tuple[object, ...], kwargs: Mapping[str, object]) -> TupleCall | None:
    """Returns the call if tuples are among its arguments and its kernel takes them; else None.

    A plain tuple for a constexpr is a value and does not count. A NamedTuple counts for constexprs too, because the
    kernel reads its fields by name. Kernels of kinds without tuples receive a NamedTuple for a constexpr as a plain
    tuple.

    Raises:
        ArgumentError: tuples nested too deeply.
    """
    parameters = kernel.source.signature.parameters
    arguments_by_name = {**dict(zip((parameter.name for parameter in parameters), args, strict=False)), **kwargs}
    tuples: dict[str, tuple[object, ...]] = {}
    constants: set[str] = set()
    for parameter in parameters:
        default = None if isinstance(parameter.default, NoDefault) else parameter.default
        value = arguments_by_name.get(parameter.name, default)
        constant = parameter.kind is ParameterKind.CONSTEXPR
        if isinstance(value, tuple) and (not constant or _has_fields(cast("tuple[object, ...]", value))):
            tuples[parameter.name] = cast("tuple[object, ...]", value)
            constants |= {parameter.name} if constant else set()
    takes = kernel.takes_tuples
    if not tuples or len(args) > len(parameters) or not (takes or constants == set(tuples)):
        return None
    plain_arguments = {name: value for name, value in arguments_by_name.items() if name not in tuples}
    if not takes:
        return TupleCall(kernel, {**plain_arguments, **{name: _plain(value) for name, value in tuples.items()}}, {})
    shapes = {name: shape_of(value) for name, value in tuples.items()}
    for name, value in tuples.items():
        plain_arguments.update(zip(shapes[name].names(name), leaves(value), strict=True))
    return TupleCall(kernel.with_tuples(shapes), plain_arguments, tuples)


def serve_tuples(
    kernel: DeclaredKernel, arguments: Mapping[str, object], options: Mapping[str, object], grid: object
) -> bool:
    """Launches a call if tuples are among its arguments, and returns True; returns False for a call without tuples.

    Errors of the launch are passed on.
    """
    call = tuple_call(kernel, (), arguments)
    if call is None:
        return False
    launcher: Any = cast("Any", call.kernel).launcher
    (launcher if grid is None else launcher[call.grid(grid)])(**call.named, **options)
    return True


class TupleLauncher:
    """A bound launcher for calls with tuples; each tuple must have the shape of the example's tuple."""

    def __init__(self, bound: Any, kernel: DeclaredKernel, tuple_call: TupleCall) -> None:  # noqa: ANN401  # a launcher
        self._bound = bound
        self._kernel = kernel
        self._tuple_call = tuple_call

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Launches the call. Raises ArgumentError for tuples whose shapes differ from the example's."""
        self._bound(**self._named(args, kwargs))

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return lambda *args, **kwargs: self._bound[self._tuple_call.grid(grid)](**self._named(args, kwargs))

    def _named(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Mapping[str, object]:
        call = tuple_call(self._kernel, args, kwargs)
        if call is None or call.kernel is not self._tuple_call.kernel:
            raise ArgumentError(
                f"{self._kernel.name} was bound with tuples {describe(self._tuple_call.tuples)}, and gets other "
                "ones; call "
                "the kernel itself, or bind it again"
            )
        return call.named


def _plain(value: object) -> object:
    return tuple(_plain(item) for item in cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def _has_fields(value: tuple[object, ...]) -> bool:
    """Returns whether a tuple is a NamedTuple, or contains one."""
    nested = [cast("tuple[object, ...]", item) for item in value if isinstance(item, tuple)]
    return hasattr(type(value), "_fields") or any(_has_fields(item) for item in nested)


class LaunchesCalls(Protocol):
    """A native launcher, or a wrapper of one. It is called with the declared grid, or through ``launcher[grid]``."""

    def __call__(self, *args: object, **kwargs: object) -> None: ...

    def __getitem__(self, grid: Any, /) -> Callable[..., None]: ...  # noqa: ANN401  # a tuple or a callable


class ZeroingLauncher:
    """Wraps a launcher; before each launch it sets to zero the arguments that the call's config requires to be zero.

    If all configs require the same arguments, setting them is the only extra work of a call. Otherwise the config of
    each call is looked up first, by a second pass through the guard.
    """

    def __init__(self, launcher: LaunchesCalls, native: Launcher, kernel: DeclaredKernel) -> None:
        self._launcher = launcher
        self._native = native
        self._kernel = kernel
        self._completed: Callable[..., dict[str, object]] | None = getattr(launcher, "complete", None)

    @property
    def native(self) -> Launcher:
        """The wrapped native launcher."""
        return self._native

    def complete(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Returns the keyword arguments completed with the values of the heuristics that run in Python."""
        return dict(kwargs) if self._completed is None else self._completed(args, kwargs)

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Sets the arguments to zero and launches with the declared grid."""
        call_values = self.complete(args, kwargs)
        self._set(args, call_values, {})
        self._launcher(*args, **call_values)

    def __getitem__(self, grid: object) -> Callable[..., None]:
        def launch(*args: object, **kwargs: object) -> None:
            call_values = self.complete(args, kwargs)
            self._set(args, call_values, {"grid": grid})
            self._launcher[grid](*args, **call_values)

        return launch

    def _set(self, args: tuple[object, ...], kwargs: Mapping[str, object], grid: Mapping[str, object]) -> None:
        kernel = self._kernel
        if recording() is not None:
            raise ArgumentError(
                f"{kernel.name} has arguments set to zero before its launches, which a plan does not record: set them"
                " to zero by a kernel of its own, or end the plan there"
            )
        names = kernel.zeroed_always
        if names is None:
            names = kernel.zeroed_by(self._native.resolve(*args, **kwargs, **grid).config)
        set_to_zero(kernel, names, args, kwargs)


def set_to_zero(
    kernel: DeclaredKernel, names: tuple[str, ...], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> None:
    """Sets these arguments of a call to zero, in the current stream of the library that made the arrays.

    Raises:
        ArgumentError: an argument cannot be filled, or the call names another stream.
    """
    passed: dict[str, Any] = {**dict(zip(kernel.source.signature.names, args, strict=False)), **kwargs}
    if names and kwargs.get("stream") is not None:
        raise ArgumentError(
            f"{kernel.name}: its config sets {', '.join(names)} to zero in the library's current stream, and the call "
            "names a stream; make that stream the current one of the library instead"
        )
    for name in names:
        array = passed.get(name)
        fill = getattr(array, "zero_", None)  # torch
        if callable(fill):
            fill()
        elif callable(fill := getattr(array, "fill", None)):  # numpy, cupy, silo.Buffer
            fill(0)
        else:
            raise ArgumentError(
                f"{kernel.name}: its config sets {name} to zero before each launch, and {describe(array)} cannot be "
                "filled"
            )


def refuse_zeroing(kernel: DeclaredKernel, user: str) -> None:
    """Raises SourceError if configs of the kernel set arguments to zero, because ``user`` launches without doing so."""
    if kernel.zeroed:
        names = sorted({name for names in kernel.zeroed.values() for name in names})
        raise SourceError(
            f"{kernel.name} ({kernel.location}): the pre_hook of its configs sets {', '.join(names)} to zero before "
            f"each launch, and {user} runs no hook; zero it before the call and leave the hook out, or give "
            "silo.kernel a space="
        )
