"""Calls with tuples among their arguments: they go to a kernel with a parameter for each value of a tuple."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from silo.core.argument_facts import describe
from silo.core.compound_arguments import leaves, shape_of
from silo.core.signature import NoDefault, ParameterKind
from silo.errors import ArgumentError

if TYPE_CHECKING:
    from silo.building.kernel_declaration import DeclaredKernel

__all__ = ["TupleCall", "TupleLauncher", "serve_tuples", "tuple_call"]


@dataclass(frozen=True)
class TupleCall:
    """A call with tuples among its arguments.

    ``kernel`` is made for tuples of these shapes, ``named`` holds its arguments by name, ``tuples`` the caller's own
    tuples.
    """

    kernel: DeclaredKernel
    named: Mapping[str, object]
    tuples: Mapping[str, object]

    def grid(self, grid: object) -> object:
        """The grid of the call: a function gets the tuples under their own names as well."""
        if not callable(grid):
            return grid
        function = cast("Callable[[Mapping[str, object]], object]", grid)

        def with_tuples(known: Mapping[str, object]) -> object:
            return function({**known, **self.tuples})

        return with_tuples


def tuple_call(kernel: DeclaredKernel, args: tuple[object, ...], kwargs: Mapping[str, object]) -> TupleCall | None:
    """The call, if tuples are among its arguments and its kernel takes them; else None.

    A plain tuple for a constexpr is a value and does not count. A NamedTuple counts for every parameter, because the
    kernel names its fields. Kernels of kinds without tuples get a NamedTuple for a constexpr as a plain tuple.

    Raises:
        ArgumentError: tuples nested too deeply.
    """
    parameters = kernel.source.signature.parameters
    given = {**dict(zip((one.name for one in parameters), args, strict=False)), **kwargs}
    tuples: dict[str, tuple[object, ...]] = {}
    constants: set[str] = set()
    for one in parameters:
        default = None if isinstance(one.default, NoDefault) else one.default
        value = given.get(one.name, default)
        constant = one.kind is ParameterKind.CONSTEXPR
        if isinstance(value, tuple) and (not constant or _has_fields(cast("tuple[object, ...]", value))):
            tuples[one.name] = cast("tuple[object, ...]", value)
            constants |= {one.name} if constant else set()
    takes = kernel.takes_tuples
    if not tuples or len(args) > len(parameters) or not (takes or constants == set(tuples)):
        return None
    named = {name: value for name, value in given.items() if name not in tuples}
    if not takes:
        return TupleCall(kernel, {**named, **{name: _plain(value) for name, value in tuples.items()}}, {})
    shapes = {name: shape_of(value) for name, value in tuples.items()}
    for name, value in tuples.items():
        named.update(zip(shapes[name].names(name), leaves(value), strict=True))
    return TupleCall(kernel.with_tuples(shapes), named, tuples)


def serve_tuples(
    kernel: DeclaredKernel, arguments: Mapping[str, object], options: Mapping[str, object], grid: object
) -> bool:
    """Launches a call with tuples among its arguments; returns False for a call without. Raises the launch's errors."""
    found = tuple_call(kernel, (), arguments)
    if found is None:
        return False
    launcher: Any = cast("Any", found.kernel).launcher
    (launcher if grid is None else launcher[found.grid(grid)])(**found.named, **options)
    return True


class TupleLauncher:
    """A bound launcher that is called with tuples, each of the shape that it was bound with."""

    def __init__(self, bound: Any, kernel: DeclaredKernel, found: TupleCall) -> None:  # noqa: ANN401  # a launcher
        self._bound = bound
        self._kernel = kernel
        self._found = found

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Launches. Raises ArgumentError for tuples of other shapes."""
        self._bound(**self._named(args, kwargs))

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return lambda *args, **kwargs: self._bound[self._found.grid(grid)](**self._named(args, kwargs))

    def _named(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Mapping[str, object]:
        call = tuple_call(self._kernel, args, kwargs)
        if call is None or call.kernel is not self._found.kernel:
            raise ArgumentError(
                f"{self._kernel.name} was bound with tuples {describe(self._found.tuples)}, and gets other ones; call "
                "the kernel itself, or bind it again"
            )
        return call.named


def _plain(value: object) -> object:
    return tuple(_plain(item) for item in cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def _has_fields(value: tuple[object, ...]) -> bool:
    """Whether a tuple is a NamedTuple, or contains one."""
    nested = [cast("tuple[object, ...]", item) for item in value if isinstance(item, tuple)]
    return hasattr(type(value), "_fields") or any(_has_fields(item) for item in nested)
