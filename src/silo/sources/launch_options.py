"""Launch options: numbers, names of configs' members, or functions of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from silo.core import expressions
from silo.core.expressions import Bindings, ConfigValue, Const, Node, leaves
from silo.core.plugins import is_option
from silo.core.trace import trace_grid
from silo.core.values import JSON, Value
from silo.errors import CompileError, ExpressionError, SourceError

__all__ = ["LaunchOption", "LaunchOptions", "evaluated", "read_axes", "read_launch_options"]

LaunchOption: TypeAlias = "int | str | Sequence[int | str] | Callable[[Any], object]"

_MAX_THREADS = 1024
_MAX_CLUSTER = 16  # with NonPortableClusterSizeAllowed
_AXES = 3


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """An author's launch options, as expressions over constants; None: the language decides it."""

    block: tuple[Node, ...] | None = None
    cluster: tuple[Node, ...] | None = None
    smem: Node | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The constants that it reads, each once."""
        every = (*(self.block or ()), *(self.cluster or ()), *(() if self.smem is None else (self.smem,)))
        found = [leaf.name for node in every for leaf in leaves(node) if isinstance(leaf, ConfigValue)]
        return tuple(dict.fromkeys(name for name in found if not is_option(name)))

    def to_json(self) -> JSON:
        """The canonical form."""
        return [
            None if self.block is None else [expressions.to_json(axis) for axis in self.block],
            None if self.cluster is None else [expressions.to_json(axis) for axis in self.cluster],
            None if self.smem is None else expressions.to_json(self.smem),
        ]

    def values(self, kernel: str, constants: Mapping[str, Value]) -> LaunchValues:
        """Their values with one config. Raises CompileError for impossible values, which rejects only that config."""
        block = self._axes(kernel, "block", self.block, constants, _MAX_THREADS, "threads")
        cluster = self._axes(kernel, "cluster", self.cluster, constants, _MAX_CLUSTER, "blocks")
        smem = None if self.smem is None else evaluated(kernel, "smem", self.smem, constants)
        if smem is not None and smem < 0:
            raise CompileError(f"{kernel}: smem is {smem}; it is a number of bytes")
        return LaunchValues(block, cluster, smem)

    def _axes(
        self,
        kernel: str,
        what: str,
        axes: tuple[Node, ...] | None,
        constants: Mapping[str, Value],
        most: int,
        units: str,
    ) -> tuple[int, int, int] | None:
        if axes is None:
            return None
        found = [evaluated(kernel, what, axis, constants) for axis in axes]
        x, y, z = (*found, *[1] * (_AXES - len(found)))
        if min(x, y, z) < 1 or x * y * z > most:
            raise CompileError(f"{kernel}: {what} is ({x}, {y}, {z}); a {what} has 1 to {most} {units}")
        return x, y, z


@dataclass(frozen=True, slots=True)
class LaunchValues:
    """Launch options of one variant."""

    block: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None
    smem: int | None


def evaluated(kernel: str, what: str, node: Node, constants: Mapping[str, Value]) -> int:
    """The value of an option with one config. Raises CompileError."""
    try:
        return expressions.evaluate(node, Bindings(config=constants))
    except ExpressionError as error:
        raise CompileError(f"{kernel}: {what} is {node}: {error}") from None


def read_launch_options(
    kernel: str,
    names: Sequence[str],
    *,
    block: LaunchOption | None,
    cluster: LaunchOption | None,
    smem: int | str | Callable[[Any], object] | None,
) -> LaunchOptions:
    """Reads an author's launch options. ``names`` are the constants that a function may read.

    Raises:
        SourceError: not a number, a name, a tuple of up to three of these, or a function of the constants.
        TraceError: the function cannot become an expression.
    """
    axes = None if smem is None else read_axes(kernel, "smem", smem, names)
    if axes is not None and len(axes) != 1:
        raise SourceError(f"{kernel}: smem is one number of bytes, not {len(axes)}")
    return LaunchOptions(
        None if block is None else read_axes(kernel, "block", block, names),
        None if cluster is None else read_axes(kernel, "cluster", cluster, names),
        None if axes is None else axes[0],
    )


def read_axes(kernel: str, what: str, given: LaunchOption, names: Sequence[str]) -> tuple[Node, ...]:
    """Up to three numbers as an author gives them. Raises SourceError, TraceError."""
    if callable(given):
        return trace_grid(given, (), names)
    parts = given if isinstance(given, tuple | list) else (cast("int | str", given),)
    if not 1 <= len(parts) <= _AXES or not all(_is_part(part) for part in parts):
        raise SourceError(
            f"{kernel}: {what}={given!r}; it is a number, the name of a constant, up to three of these, or a function "
            f"of the constants such as lambda c: c.{names[0] if names else 'THREADS'} // 2"
        )
    return tuple(ConfigValue(part) if isinstance(part, str) else Const(part) for part in parts)


def _is_part(part: object) -> bool:
    return (isinstance(part, str) and part.isidentifier()) or (isinstance(part, int) and not isinstance(part, bool))
