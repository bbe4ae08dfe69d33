"""Grids of the kinds of kernels that compilers generate, as expressions in 64 bits, one for each axis.

A size is the name of an integer argument, an integer, or an expression; a block is the name of a config value, an
integer, or an expression. All grids follow these rules:

- Zero elements give zero programs. A negative size makes an axis negative, whatever the other sizes are; every launcher
  refuses a negative axis.
- Numbers never wrap: an axis that exceeds 64 bits is an error of the expression, an axis that the device cannot launch
  is an error of the launcher.
- Conditions on a kernel's blocks are requirements of the grid: configs that break them are not part of the space.

The kinds follow PyTorch 2.13 (``torch/_inductor/runtime/triton_heuristics.py``, ``GridExpr``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TypeAlias

from silo.core.expressions import Argument, Bindings, ConfigValue, Const, Node, OpKind, evaluate, make, substitute
from silo.core.values import Value
from silo.errors import ExpressionError, SpaceError
from silo.frozen import frozen

__all__ = [
    "MAX_Y",
    "Block",
    "Grid",
    "Part",
    "Size",
    "batch_matmul",
    "cooperative",
    "fixed",
    "flat",
    "flattened_combo",
    "mix_order",
    "precomputed",
    "round_robin_combo",
    "sequential_combo",
    "split_scan",
    "tall",
    "tiles",
    "volume",
]

Size: TypeAlias = "str | int | Node"
Block: TypeAlias = "str | int | Node"

# The most programs along y and z that CUDA and HIP launch.
MAX_Y = 65535


@frozen
class Grid:
    """A grid: its axes x, y, z, and its requirements on configs.

    A requirement is an expression that must not be 0, with the text of its error.
    """

    axes: tuple[Node, Node, Node]
    requires: tuple[tuple[Node, str], ...] = ()

    def of_config(self, config: Mapping[str, Value]) -> Grid:
        """Returns the grid with a config's values substituted.

        ``SpaceError`` names the requirement that the config breaks.
        """
        for requirement, text in self.requires:
            if evaluate(requirement, Bindings(config=config)) == 0:
                config_text = ", ".join(f"{name}={value}" for name, value in config.items())
                raise SpaceError(f"the grid needs {text}, and the config has {config_text}")
        x, y, z = (substitute(axis, config=config) for axis in self.axes)
        return Grid((x, y, z))

    def dimensions(self, values: Mapping[str, Value], config: Mapping[str, Value]) -> tuple[int, int, int]:
        """Returns the numbers of programs along x, y, z for argument values and a config.

        Raises:
            SpaceError: the config breaks a requirement.
            ExpressionError: an axis lacks a value.

        >>> flat("n", "BLOCK").dimensions({"n": 1000}, {"BLOCK": 128})
        (8, 1, 1)
        """
        bindings = Bindings(values=values)
        x, y, z = (evaluate(axis, bindings) for axis in self.of_config(config).axes)
        return x, y, z

    def __str__(self) -> str:
        return f"({', '.join(str(axis) for axis in self.axes)})"


@frozen
class Part:
    """One kernel of a combo: its sizes along x and, if it has two dimensions, y.

    ``blocked``: whether x is divided into blocks; if not, each program handles one element of x (a row).
    """

    x: Size
    y: Size | None = None
    blocked: bool = True


def flat(x: Size, xblock: Block = "XBLOCK") -> Grid:
    """Returns a grid of one dimension: blocks of x.

    >>> str(flat("n", "BLOCK"))
    '(min(n, cdiv(n, BLOCK)), 1, 1)'
    """
    return _grid(_blocks(x, xblock))


def tiles(x: Size, y: Size, xblock: Block = "XBLOCK", yblock: Block = "YBLOCK") -> Grid:
    """Returns a grid of two dimensions. If y may have more than 65535 blocks, use :func:`tall`."""
    return _grid(_blocks(x, xblock), _blocks(y, yblock))


def volume(
    x: Size, y: Size, z: Size, xblock: Block = "XBLOCK", yblock: Block = "YBLOCK", zblock: Block = "ZBLOCK"
) -> Grid:
    """Returns a grid of three dimensions."""
    return _grid(_blocks(x, xblock), _blocks(y, yblock), _blocks(z, zblock))


def batch_matmul(
    x: Size, y: Size, z: Size, xblock: Block = "XBLOCK", yblock: Block = "YBLOCK", zblock: Block = "ZBLOCK"
) -> Grid:
    """Returns a grid with batches (z) along axis 0, which has the largest limit, and columns (x) along axis 2.

    So ``program_id(0)`` is the batch.
    """
    return _grid(_blocks(z, zblock), _blocks(y, yblock), _blocks(x, xblock))


def tall(x: Size, y: Size, xblock: Block = "XBLOCK", yblock: Block = "YBLOCK", limit: int = MAX_Y) -> Grid:
    """Returns a grid of two dimensions of any length: blocks of y beyond ``limit`` continue along z.

    The kernel computes its block of y as ``program_id(1) + program_id(2) * num_programs(1)``. In some programs this
    number may be past the last block.

    >>> tall("n", "m", 16, 1).dimensions({"n": 16, "m": 65536}, {})
    (1, 32768, 2)
    """
    return _grid(_blocks(x, xblock), *_wrapped(_blocks(y, yblock), limit))


def mix_order(x: Size, split: Block = "RSPLIT_SIZE", xblock: Block = "XBLOCK") -> Grid:
    """Returns the grid of Inductor's mix-order reduction: each program handles ``split`` rows, ``xblock`` at a time.

    ``xblock`` must divide ``split``.
    """
    divides = make(OpKind.EQ, make(OpKind.MOD, _block(split), _block(xblock)), Const(0))
    return _grid(_blocks(x, split), requires=((divides, f"{split} to be a multiple of {xblock}"),))


def cooperative(x: Size, split: Block = "RSPLIT", xblock: Block = "XBLOCK", *, wraps: bool = False) -> Grid:
    """Returns the grid of a cooperative reduction: ``split`` programs for each block of rows.

    The programs wait for one another, so the device must run all of them at once: launch the kernel as a cooperative
    one. ``wraps``: rows beyond 65535 blocks continue along z, for a kernel that computes its rows as described at
    :func:`tall`.
    """
    rows = _blocks(x, xblock)
    return _grid(_block(split), *(_wrapped(rows, MAX_Y) if wraps else (rows,)))


def split_scan(x: Size, r: Size, rblock: Block = "R0_BLOCK", xblock: Block = 1) -> Grid:
    """Returns the grid of a split scan: blocks of the scanned axis ``r`` along x, rows of ``x`` along y.

    ``xblock`` must be 1.
    """
    single = make(OpKind.EQ, _block(xblock), Const(1))
    requires = () if single == Const(1) else ((single, f"{xblock} to be 1"),)
    return _grid(_blocks(r, rblock), _size(x), requires=requires)


def fixed(x: Size, y: Size = 1, z: Size = 1) -> Grid:
    """Returns a grid whose axes are given numbers of programs: constants, or arguments of the call."""
    return _grid(_size(x), _size(y), _size(z))


def precomputed(table: Sequence[tuple[Mapping[str, Value], Sequence[Size] | Grid]]) -> Grid:
    """Returns a grid from a table of config values: a config uses the grid of the entry whose values it agrees with.

    An entry's grid is a :class:`Grid`, or one to three sizes. If a config agrees with several entries, the entry with
    the most values counts, and of several such entries the first. A config that agrees with no entry is not part of the
    space. Raises ``ExpressionError`` for a table without entries, or with values that are not integers.

    >>> grid = precomputed([({}, ["n"]), ({"SPLIT": 2}, ["n", 2])])
    >>> grid.dimensions({"n": 7}, {"SPLIT": 2}), grid.dimensions({"n": 7}, {"SPLIT": 1})
    ((7, 2, 1), (7, 1, 1))
    """
    if not table:
        raise ExpressionError("a table of grids without entries gives no grid")
    entries = [(_matches(values), _as_grid(grid)) for values, grid in sorted(table, key=lambda entry: -len(entry[0]))]
    # Configs without an entry get an axis of -1: the requirement below excludes these configs from the space, and every
    # launcher refuses a negative axis.
    axes: tuple[Node, Node, Node] = (Const(-1), Const(-1), Const(-1))
    for matches, grid in reversed(entries):
        x, y, z = (make(OpKind.SELECT, matches, own, other) for own, other in zip(grid.axes, axes, strict=True))
        axes = (x, y, z)
    matched = reduce(lambda left, right: make(OpKind.OR, left, right), [matches for matches, _ in entries])
    requires: list[tuple[Node, str]] = (
        [] if matched == Const(1) else [(matched, "an entry of its table for the config")]
    )
    before: list[Node] = []
    for matches, grid in entries:
        earlier_matches = reduce(lambda left, right: make(OpKind.OR, left, right), before, Const(0))
        chosen = make(OpKind.AND, matches, make(OpKind.NOT, earlier_matches))
        requires += [(make(OpKind.OR, make(OpKind.NOT, chosen), need), text) for need, text in grid.requires]
        before.append(matches)
    return Grid(axes, tuple(requires))


def sequential_combo(
    parts: Sequence[Part], xblock: Block = "XBLOCK", yblock: Block = "YBLOCK", *, least: int = 0, limit: int = MAX_Y
) -> Grid:
    """Returns the grid of several kernels, one after the other along x in the order of ``parts``.

    All kernels get the same axis y, as long as the longest of them needs. ``least``: the least number of programs along
    x, unless the work is empty. ``limit`` splits y as in :func:`tall`.

    >>> sequential_combo([Part("n"), Part(5, blocked=False)], 64).dimensions({"n": 100}, {})
    (7, 1, 1)
    """
    total = _sum([_count(part, xblock) for part in _checked(parts)])
    return _grid(_along_x(parts, total, least), *_shared(parts, yblock, limit))


def round_robin_combo(
    parts: Sequence[Part], xblock: Block = "XBLOCK", yblock: Block = "YBLOCK", *, least: int = 0, limit: int = MAX_Y
) -> Grid:
    """Returns the grid of several kernels in turns along x.

    With ``count`` kernels, program ``i`` is block ``i // count`` of kernel ``i % count``.

    >>> round_robin_combo([Part("n"), Part(5, blocked=False)], 64).dimensions({"n": 100}, {})
    (10, 1, 1)
    """
    rows = [_size(part.x) for part in _checked(parts) if not part.blocked]
    blocked = [_size(part.x) for part in parts if part.blocked]
    counts = [*rows, *([make(OpKind.CDIV, _longest(blocked), _block(xblock))] if blocked else [])]
    round_length = make(OpKind.MUL, _longest(counts), Const(len(parts)))
    return _grid(_along_x(parts, round_length, least), *_shared(parts, yblock, limit))


def flattened_combo(parts: Sequence[Part], xblock: str = "XBLOCK", yblock: str = "YBLOCK", *, least: int = 0) -> Grid:
    """Returns the grid of several kernels, one after the other along x, each with its blocks of x and y flattened.

    Kernel ``i`` has its own block sizes, ``XBLOCK_i`` and ``YBLOCK_i``.

    >>> grid = flattened_combo([Part("n"), Part(8, 6)])
    >>> grid.dimensions({"n": 100}, {"XBLOCK_0": 50, "XBLOCK_1": 4, "YBLOCK_1": 3})
    (6, 1, 1)
    """
    counts: list[Node] = []
    for index, part in enumerate(_checked(parts)):
        count = _count(part, f"{xblock}_{index}")
        if part.y is not None:
            count = make(OpKind.MUL, count, make(OpKind.CDIV, _size(part.y), _block(f"{yblock}_{index}")))
        counts.append(count)
    sizes = [_size(part.y) for part in parts if part.y is not None]
    return _grid(_refusing(sizes, _along_x(parts, _sum(counts), least)))


_ONE = Const(1)


def _grid(x: Node, y: Node = _ONE, z: Node = _ONE, *, requires: tuple[tuple[Node, str], ...] = ()) -> Grid:
    return Grid((x, y, z), requires)


def _size(size: Size) -> Node:
    """Returns the expression of a size; raises ``ExpressionError`` for a negative constant."""
    node = Argument(size) if isinstance(size, str) else Const(size) if isinstance(size, int) else size
    if isinstance(node, Const) and node.value < 0:
        raise ExpressionError(f"the size {node.value} of a grid is negative")
    return node


def _block(block: Block) -> Node:
    node = ConfigValue(block) if isinstance(block, str) else Const(block) if isinstance(block, int) else block
    if isinstance(node, Const) and node.value < 1:
        raise ExpressionError(f"the block {node.value} of a grid is not positive")
    return node


def _blocks(size: Size, block: Block) -> Node:
    """Returns the number of blocks of a size. ``min`` keeps a negative size negative, however large the block."""
    node, width = _size(size), _block(block)
    count = make(OpKind.CDIV, node, width)
    return count if isinstance(node, Const) or count == node else make(OpKind.MIN, node, count)


def _count(part: Part, block: Block) -> Node:
    """Returns the number of programs along x of one kernel of a combo, if the kernel's size is not negative."""
    return make(OpKind.CDIV, _size(part.x), _block(block)) if part.blocked else _size(part.x)


def _wrapped(blocks: Node, limit: int) -> tuple[Node, Node]:
    """Returns the axes y and z of a grid, over which ``blocks`` are distributed in layers of at most ``limit`` blocks.

    z is the least possible number of layers, and y is the number of blocks in each of them. If ``blocks`` is negative,
    a returned axis is negative too.
    """
    layers = make(OpKind.MAX, make(OpKind.CDIV, blocks, Const(limit)), _ONE)
    return make(OpKind.CDIV, blocks, layers), layers


def _shared(parts: Sequence[Part], yblock: Block, limit: int) -> tuple[Node, ...]:
    sizes = [_size(part.y) for part in parts if part.y is not None]
    if not sizes:
        return ()
    longest = _longest(sizes)
    return _wrapped(_refusing(sizes, _blocks(longest, yblock)), limit)


def _refusing(sizes: Sequence[Node], value: Node) -> Node:
    """Returns ``value``, or the least of ``sizes`` if that is negative.

    ``value`` is a maximum or a sum over ``sizes`` and could be positive although one size is negative; the axis must be
    negative then, so that every launcher refuses the grid.
    """
    varying = [size for size in sizes if not isinstance(size, Const)]
    if not varying:
        return value
    smallest = reduce(lambda left, right: make(OpKind.MIN, left, right), varying)
    return make(OpKind.SELECT, make(OpKind.LT, smallest, Const(0)), smallest, value)


def _sum(counts: Sequence[Node]) -> Node:
    return reduce(lambda left, right: make(OpKind.ADD, left, right), counts)


def _longest(sizes: Sequence[Node]) -> Node:
    return reduce(lambda left, right: make(OpKind.MAX, left, right), sizes)


def _along_x(parts: Sequence[Part], programs: Node, least: int) -> Node:
    """Returns the axis x: ``programs``, or ``least`` if ``programs`` is smaller but not 0.

    If a size along x is negative, returns the least size instead, so that the axis is negative.
    """
    if least > 0:
        programs = make(OpKind.SELECT, programs, make(OpKind.MAX, programs, Const(least)), programs)
    return _refusing([_size(part.x) for part in parts], programs)


def _matches(values: Mapping[str, Value]) -> Node:
    equal: list[Node] = []
    for name, value in sorted(values.items()):
        if not isinstance(value, int):
            raise ExpressionError(f"a table of grids has {name}={value!r}; only integers and bools can be compared")
        equal.append(make(OpKind.EQ, ConfigValue(name), Const(int(value))))
    return reduce(lambda left, right: make(OpKind.AND, left, right), equal, Const(1))


def _as_grid(grid: Sequence[Size] | Grid) -> Grid:
    if isinstance(grid, Grid):
        return grid
    if isinstance(grid, str) or not 1 <= len(grid) <= 3:
        raise ExpressionError(f"a grid has 1 to 3 axes, and an entry of a table has {grid!r}")
    return fixed(*grid)


def _checked(parts: Sequence[Part]) -> Sequence[Part]:
    if not parts:
        raise ExpressionError("a combo without kernels has no grid")
    return parts
