"""What a traced body takes of VMEM besides its blocks and scratch: memory that it asks for itself, and large values.

``emit_pipeline`` and ``run_scoped`` ask for memory within the body. And a value that is computed, reduced and then used
again does not stay in registers where it is large: the compiler puts it into VMEM. Neither is in any spec.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from silo.core.dtypes import DType
from silo.kinds.pallas.front.pallas_element_types import dtype_of
from silo.kinds.pallas.memory_estimate import MemoryRow, tiled_bytes

__all__ = ["body_memory"]

_REGISTERS = 64 * 8 * 128 * 4  # bytes: values that fit there take no memory
_WORD = 4
_SCOPED = "run_scoped"
_CALLED = "pallas_call"
_READS = frozenset({"get", "load", "masked_load"})
_WRITES = frozenset({"swap", "store", "masked_swap"})
# The compiler makes these again where they are used; what they are made of is there anyway.
_MADE_AGAIN = _READS | {"broadcast_in_dim", "iota", "reshape", "squeeze", "slice"}
_PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})
_PASS = 128  # elements of each row that the matrix unit multiplies at once
_REDUCING = ("reduce_", "arg", "cum", "sort")


def body_memory(traced: Any) -> tuple[MemoryRow, ...]:  # noqa: ANN401  # a jaxpr
    """What the body of the one ``pallas_call`` within a traced program takes."""
    found: list[MemoryRow] = []
    for equation in _equations(traced):
        if equation.primitive.name == _CALLED:
            for inner in _within(equation):
                found += _scoped(inner)
                held = _held(inner)
                if held is not None:
                    found.append(held)
    return tuple(found)


def _scoped(jaxpr: Any) -> list[MemoryRow]:  # noqa: ANN401
    """The largest memory that is asked for at a time: what is asked for in turn takes the same place."""
    most: list[MemoryRow] = []
    for equation in jaxpr.eqns:
        for inner in _within(equation):
            found = _scoped(inner)
            if equation.primitive.name == _SCOPED:
                own = (_reference(one.aval, place) for place, one in enumerate(inner.invars))
                found = [*(one for one in own if one is not None), *found]
            if sum(one.total for one in found) > sum(one.total for one in most):
                most = found
    return most


def _reference(aval: Any, place: int) -> MemoryRow | None:  # noqa: ANN401
    element = dtype_of(aval.dtype) if str(getattr(aval, "memory_space", "")) == "vmem" else None
    if element is None:
        return None
    shape = tuple(int(size) for size in aval.shape)
    return MemoryRow(f"memory {place} of the body's own", "vmem", shape, element.name, 1, tiled_bytes(shape, element))


def _held(jaxpr: Any) -> MemoryRow | None:  # noqa: ANN401
    """The values that are in memory at once where most of them are; None where registers hold what is computed."""
    best: tuple[int, tuple[int, ...], DType] | None = None
    for size, shape, element in _peaks(jaxpr):
        if best is None or size > best[0]:
            best = size, shape, element
    if best is None or best[0] <= _REGISTERS:
        return None
    size, shape, element = best
    return MemoryRow("values between", "vmem", shape, element.name, 1, size)


def _peaks(jaxpr: Any) -> Iterator[tuple[int, tuple[int, ...], DType]]:  # noqa: ANN401
    """For each operation that values are held across, their bytes, and the shape and dtype of the largest."""
    equations: Sequence[Any] = jaxpr.eqns
    last: dict[int, int] = {}
    readers: dict[int, set[str]] = {}
    for place, equation in enumerate(equations):
        for one in equation.invars:
            last[id(one)] = place
            readers.setdefault(id(one), set()).add(equation.primitive.name)
    sources = _sources(equations)
    for place, equation in enumerate(equations):
        name = equation.primitive.name
        held: list[tuple[int, tuple[int, ...], DType]] = []
        if name in _PRODUCTS and _length(equation) > _PASS:
            # A sum of several products, and a quarter of it again while they are added. Where it goes straight to
            # memory they are added up there; and of products of words, each of which takes several passes, next to
            # nothing waits.
            several = [one for one in equation.outvars if readers.get(id(one), _WRITES) - _WRITES]
            share = 1 / 16 if equation.invars[0].aval.dtype.itemsize >= _WORD else 5 / 4
            held += [(int(size[0] * share), *size[1:]) for one in several if (size := _size(one.aval))]
        if name in _PRODUCTS or name.startswith(_REDUCING):
            before = [equations[one] for one in sources[place] if equations[one].primitive.name not in _MADE_AGAIN]
            later = [one for other in before for one in other.outvars if last.get(id(one), -1) > place]
            held += [size for one in later if (size := _size(one.aval))]
        if held:
            _, shape, element = max(held, key=lambda one: one[0])
            yield sum(size for size, _, _ in held), shape, element
        for inner in _within(equation):
            yield from _peaks(inner)


def _sources(equations: Sequence[Any]) -> Mapping[int, frozenset[int]]:
    """For each operation those whose results it is made of, directly or not."""
    maker: dict[int, int] = {}
    found: dict[int, frozenset[int]] = {}
    for place, equation in enumerate(equations):
        direct = {maker[id(one)] for one in equation.invars if id(one) in maker}
        found[place] = frozenset(direct).union(*(found[one] for one in direct))
        for one in equation.outvars:
            maker[id(one)] = place
    return found


def _length(equation: Any) -> int:  # noqa: ANN401
    """How many products are added up for each element; a large number where that is not known."""
    numbers = equation.params.get("dimension_numbers")
    if equation.primitive.name != "dot_general" or numbers is None:
        return _PASS + 1
    return math.prod(equation.invars[0].aval.shape[axis] for axis in numbers[0][0])


def _size(aval: Any) -> tuple[int, tuple[int, ...], DType] | None:  # noqa: ANN401
    element = dtype_of(getattr(aval, "dtype", None))
    shape: tuple[Any, ...] = tuple(getattr(aval, "shape", ()))
    if element is None or not shape or not all(isinstance(one, int) for one in shape):
        return None
    return tiled_bytes(shape, element), shape, element


def _equations(traced: Any) -> Iterator[Any]:  # noqa: ANN401
    for equation in _plain(traced).eqns:
        yield equation
        if equation.primitive.name != _CALLED:
            for inner in _within(equation):
                yield from _equations(inner)


def _within(equation: Any) -> Iterator[Any]:  # noqa: ANN401
    """The jaxprs that an operation has: the body of a loop, the branches of a condition."""
    for value in equation.params.values():
        for one in cast("Iterable[Any]", value if isinstance(value, tuple | list) else (value,)):
            plain = _plain(one)
            if hasattr(plain, "eqns") and hasattr(plain, "invars"):
                yield plain


def _plain(jaxpr: Any) -> Any:  # noqa: ANN401
    """A jaxpr without its constants."""
    return getattr(jaxpr, "jaxpr", jaxpr)
