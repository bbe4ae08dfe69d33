"""Literal data of a case's arrays: stored values, or a function of an element's indices."""

from __future__ import annotations

import itertools
import math
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from silo.core.expressions import Argument, Bindings, Node, encode, evaluate, from_json, leaves, to_json
from silo.core.host_arrays import numpy_dtype, require_numpy, round_to_bits
from silo.core.json_reader import read_object, read_text
from silo.core.trace import trace_indices
from silo.core.values import JSON, DType, DTypeKind, dtype_named, malformed
from silo.errors import CaseError, ExpressionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OWN_LIMIT", "Formula", "OwnData", "Tabulate", "Values", "formula_of", "own_from_json", "values_of"]

# The most bytes of literal values that an array of a case may have, because the values are stored in the case.
OWN_LIMIT = 1 << 18

# The type of ``tabulate(program, shape, out)``: evaluates an expression program for each element's indices, in C order,
# into 64-bit integers.
Tabulate: TypeAlias = Callable[[bytes, tuple[int, ...], "array[int]"], None]

_MOST_AXES = 8  # the native code evaluates a function over at most 8 indices

_CODES = {
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
    "bool": "B",
}


@dataclass(frozen=True, slots=True)
class Values:
    """An array's elements, stored in C order, little-endian."""

    data: bytes

    def elements(self, element: DType, shape: tuple[int, ...], tabulate: Tabulate | None = None) -> bytes:
        """The elements in C order, in the machine's byte order."""
        del shape, tabulate
        return _swapped(self.data, element.itemsize)

    def refusal(self, element: DType, shape: tuple[int, ...]) -> str:
        """Returns why the values cannot be the elements of an array of this dtype and shape; "" if they can."""
        size, data_bytes = math.prod(shape) * element.itemsize, len(self.data)
        if size != data_bytes:
            return f"has {data_bytes} bytes of values and needs {size}"
        return f"has {data_bytes} bytes of values; at most {OWN_LIMIT} are kept" if data_bytes > OWN_LIMIT else ""

    def to_json(self) -> JSON:
        """Returns the canonical JSON form."""
        return {"values": self.data.hex()}


@dataclass(frozen=True, slots=True)
class Formula:
    """An expression over an element's indices ``i0``, ``i1``, ...; in a float array its value is converted to float."""

    node: Node

    def elements(self, element: DType, shape: tuple[int, ...], tabulate: Tabulate | None = None) -> bytes:
        """Returns the elements in C order, in the machine's byte order. ``tabulate`` computes them faster.

        Raises:
            CaseError: an element lacks a value, or its value does not fit the dtype.
        """
        names = _index_names(len(shape))
        try:
            if tabulate is None:
                places = itertools.product(*(range(extent) for extent in shape))
                numbers = array(
                    "q",
                    (
                        evaluate(self.node, Bindings(values=dict(zip(names, coordinates, strict=True))))
                        for coordinates in places
                    ),
                )
            else:
                numbers = array("q", bytes(8 * math.prod(shape)))
                program = encode(self.node, {name: number for number, name in enumerate(names)})
                tabulate(program.to_bytes(), shape, numbers)
        except ExpressionError as error:
            raise CaseError(f"an array of {self}: {error}") from None
        return _packed(numbers, element, f"an array of {self}")

    def refusal(self, element: DType, shape: tuple[int, ...]) -> str:
        """Returns why the formula cannot make the elements of an array of this dtype and shape; "" if it can."""
        del element
        index_names = _index_names(len(shape))
        if len(shape) > _MOST_AXES:
            return f"has {len(shape)} axes; a function takes at most {_MOST_AXES} indices"
        strange = [
            str(leaf) for leaf in leaves(self.node) if not isinstance(leaf, Argument) or leaf.name not in index_names
        ]
        return (
            f"is computed of {', '.join(strange)}; its indices are {', '.join(index_names) or 'none'}"
            if strange
            else ""
        )

    def to_json(self) -> JSON:
        """Returns the canonical JSON form."""
        return {"formula": to_json(self.node)}

    def __str__(self) -> str:
        return str(self.node)


OwnData: TypeAlias = Values | Formula


def own_from_json(data: JSON) -> OwnData:
    """Returns the values or the formula that the JSON holds; raises ``ValueError`` for any other JSON."""
    if isinstance(data, dict) and "formula" in data:
        return Formula(from_json(read_object(data, ("formula",), "own data")["formula"]))
    text = read_text(read_object(data, ("values",), "own data")["values"], "values")
    try:
        return Values(bytes.fromhex(text))
    except ValueError:
        raise malformed("values of an array", text) from None


def formula_of(function: Callable[..., object], shape: tuple[int, ...]) -> Formula:
    """Returns the formula that a Python function computes. Raises ``TraceError`` if it is not an expression."""
    return Formula(trace_indices(function, _index_names(len(shape))))


def values_of(values: Any, dtype: object = None) -> tuple[Values, tuple[int, ...], DType]:  # noqa: ANN401
    """Returns the values of a host array of any library, or of numbers in lists, with their shape and dtype.

    Without ``dtype`` the array's own dtype is used; Python's numbers become bool, int32 (int64 if needed) or float32.

    Raises:
        CaseError: the values are not an array, do not fit the dtype, or are too many to be stored.
    """
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        numbers, shape = _flat(cast("Sequence[Any]", values))
        element = _natural(numbers) if dtype is None else dtype_named(dtype)
        _check_size(len(numbers) * element.itemsize)
        data = _packed(numbers, element, "make.array")
    else:
        require_numpy("make.array of an array")
        import numpy as np  # noqa: PLC0415  # numpy is optional

        try:
            source: NDArray[Any] = np.asarray(values)
            element = dtype_named(source.dtype if dtype is None else dtype)
        except (TypeError, RuntimeError, CaseError) as error:
            raise CaseError(f"make.array takes arrays on the host and numbers, not this: {error}") from None
        shape = tuple(source.shape)
        _check_size(source.size * element.itemsize)
        if source.dtype == numpy_dtype(element):
            data = source.tobytes()
        else:
            data = _packed(source.reshape(-1).tolist(), element, "make.array")
    return Values(_swapped(data, element.itemsize)), shape, element


def _check_size(size: int) -> None:
    if size > OWN_LIMIT:
        raise CaseError(
            f"make.array keeps at most {OWN_LIMIT} bytes of values, and these are {size}: give a function of an "
            "element's indices that computes them, as in make.array(lambda i, j: i * 7 % 13 + j, shape=(m, n)), or "
            "random ones (make.normal, make.uniform, make.integers)"
        )


def _swapped(data: bytes, itemsize: int) -> bytes:
    """Converts between the machine's byte order and little-endian."""
    if sys.byteorder == "little" or itemsize == 1:
        return data
    words = array(_CODES[f"uint{8 * itemsize}"], data)
    words.byteswap()
    return words.tobytes()


def _index_names(count: int) -> tuple[str, ...]:
    return tuple(f"i{axis}" for axis in range(count))


def _flat(values: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Returns the numbers of nested lists in C order, and the shape."""
    shape: list[int] = []
    level: list[Any] = [values]
    while level and all(_is_row(row) for row in level):
        lengths = {len(row) for row in level}
        if len(lengths) > 1:
            raise CaseError(f"make.array: rows of one axis have {' and '.join(map(str, sorted(lengths)))} elements")
        shape.append(lengths.pop())
        level = [item for row in level for item in row]
    if any(not isinstance(row, int | float) and not hasattr(row, "__index__") for row in level):
        strange = next(row for row in level if not isinstance(row, int | float) and not hasattr(row, "__index__"))
        raise CaseError(f"make.array takes numbers in lists of one length, not {type(strange).__name__} among them")
    return level, tuple(shape)


def _is_row(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _natural(numbers: Iterable[object]) -> DType:
    kinds = {type(number) for number in numbers}
    if kinds == {bool}:
        return dtype_named("bool")
    if kinds <= {int, bool}:
        fits = all(-(1 << 31) <= cast("int", number) < 1 << 31 for number in numbers)
        return dtype_named("int32" if fits else "int64")
    return dtype_named("float32")


def _packed(numbers: Sequence[Any] | array[int], element: DType, where: str) -> bytes:
    """Packs numbers as elements in the machine's byte order. ``CaseError`` names a value that does not fit."""
    if element.kind is not DTypeKind.FLOAT:
        lowest, highest = _range(element)
        # Integers that a formula computed come as an ``array``: checking its least and its greatest element is enough.
        extremes = (min(numbers), max(numbers)) if isinstance(numbers, array) and numbers else numbers
        for number in extremes:
            if not math.isfinite(number) or int(number) != number or not lowest <= number <= highest:
                raise CaseError(f"{where}: {number} does not fit {element}")
        return array(_CODES[element.name], map(int, numbers)).tobytes()
    if element.name in _CODES:
        return _floats(numbers, element)
    require_numpy(f"an array of {element} with data of its own")
    import numpy as np  # noqa: PLC0415  # numpy is optional

    return round_to_bits(np.array(numbers, dtype=np.float64), element).tobytes()


def _floats(numbers: Iterable[Any], element: DType) -> bytes:
    doubles = [float(number) for number in numbers]
    if element.bits == 64:
        return array("d", doubles).tobytes()
    return b"".join(_single(number) for number in doubles)


def _single(number: float) -> bytes:
    try:
        return struct.pack("=f", number)
    except OverflowError:  # a value that is too large becomes infinity, as in all other conversions
        return struct.pack("=f", math.copysign(math.inf, number))


def _range(element: DType) -> tuple[int, int]:
    if element.kind is DTypeKind.BOOL:
        return 0, 1
    signed = element.kind is DTypeKind.INT
    return (-(1 << (element.bits - 1)) if signed else 0), (1 << (element.bits - signed)) - 1
