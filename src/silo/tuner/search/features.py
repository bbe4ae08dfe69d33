"""Configs as points of a Euclidean space in which those that should behave alike lie close."""

from __future__ import annotations

from typing import TYPE_CHECKING

from silo.core.lattice import Axis, Lattice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["features"]


def features(lattice: Lattice) -> NDArray[np.float64]:
    """One row a config; the values of each parameter are about 1 apart at most.

    A number counts by its place on the axis and by its logarithm, in equal parts, and by how often 2 divides it: block
    sizes that are multiples of powers of two behave alike where their neighbours do not. Values without order are all
    1 apart from each other.
    """
    import numpy as np  # noqa: PLC0415  # heavy, and nothing but a model of a large space needs it

    blocks: list[NDArray[np.float64]] = []
    for axis, column in zip(lattice.axes, lattice.columns, strict=True):
        places = np.frombuffer(column, dtype=np.uint32)
        table = _axis_features(axis, absent=bool((places == len(axis)).any()))
        if table.shape[1]:
            blocks.append(table[places])
    return np.hstack(blocks) if blocks else np.zeros((len(lattice), 1))


def _axis_features(axis: Axis, *, absent: bool) -> NDArray[np.float64]:
    """One row a place on the axis, the last for a config without the parameter."""
    import numpy as np  # noqa: PLC0415

    count = len(axis) + 1
    columns: list[NDArray[np.float64]] = []
    numbers = [float(value) for value in axis.numbers]
    if len(numbers) > 1:
        rank = np.arange(len(numbers)) / (len(numbers) - 1)
        size = _scaled(np.log2(np.maximum(numbers, 0.5))) if numbers[0] >= 0 else rank
        columns.append(_padded((rank + size) / 2, count))
        twos = _scaled(np.array([_halvings(value) for value in axis.numbers], dtype=np.float64))
        # Where it says what the logarithm says already, or there is nothing to tell apart, it would count twice.
        if len(numbers) > 2 and twos.any() and not np.allclose(twos, size):
            columns.append(_padded(twos, count))
    unordered = [*range(len(numbers), len(axis)), *([len(axis)] if absent else [])]
    if unordered and len(unordered) + min(len(numbers), 1) > 1:
        for place in unordered:
            column = np.zeros(count)
            column[place] = 2**-0.5  # two of them differ in two columns, by 1 in all
            columns.append(column)
    return np.stack(columns, axis=1) if columns else np.zeros((count, 0))


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else values * 0


def _padded(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """``values`` for the numbers of an axis, and their middle for what is not a number."""
    import numpy as np  # noqa: PLC0415

    return np.concatenate([values, np.full(count - len(values), 0.5)])


def _halvings(value: float) -> int:
    """How often 2 divides an integer; 0 for 0 and for what is not an integer."""
    if not isinstance(value, int) or value == 0:
        return 0
    return (value & -value).bit_length() - 1
