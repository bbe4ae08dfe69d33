"""Tuples and NamedTuples as arguments and as constexprs of ``silo.kernel``: as in Triton's own calls."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import silo
from silo.core.compound_arguments import shape_of
from silo.errors import ArgumentError, CheckError


class Scaled(NamedTuple):
    array: Any
    factor: Any


class Swapped(NamedTuple):
    factor: Any
    array: Any


class Block(NamedTuple):
    size: int
    fill: float


@silo.kernel
@triton.jit
def by_place(out, xs, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(xs[0] + i) * xs[1])


@silo.kernel
@triton.jit
def by_field(out, xs, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(xs.array + i) * xs.factor)


@silo.kernel
@triton.jit
def nested(out, xs, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(xs[0].array + i) * xs[0].factor + xs[1])


@silo.kernel
@triton.jit
def optional(out, xs, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if xs[1] is None:
        tl.store(out + i, tl.load(xs[0] + i))
    else:
        tl.store(out + i, tl.load(xs[0] + i) + tl.load(xs[1] + i))


@silo.kernel
@triton.jit
def filled(out, block: tl.constexpr):
    tl.store(out + tl.arange(0, block.size), block.fill)  # pyright: ignore[reportAttributeAccessIssue]


@silo.kernel(space={"BLOCK": [8, 16]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), tune="off")
@triton.jit
def declared(out, xs, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(xs[0] + i, mask=i < n) * xs[1], mask=i < n)


X = np.arange(16, dtype="float32")


def _run(kernel: Any, *arguments: Any, **options: Any) -> Any:
    out = np.zeros(16, "float32")
    kernel[(1,)](out, *arguments, **options)
    return out


def test_tuples_give_their_values_to_the_kernel() -> None:
    # The kind of fault: an argument that Triton takes is refused by silo.kernel.
    assert (_run(by_place, (X, 3), BLOCK=16) == X * 3).all()
    assert (_run(by_place, (X, 1), BLOCK=16) == X).all()  # 1 is a constant in Triton's code
    assert (_run(by_place, xs=(X, 2.5), BLOCK=16) == X * 2.5).all()
    assert (_run(by_field, Scaled(X, 3), BLOCK=16) == X * 3).all()
    assert (_run(nested, (Scaled(X, 3), 0.5), BLOCK=16) == X * 3 + 0.5).all()


def test_fields_are_part_of_what_is_compiled() -> None:
    assert (_run(by_field, Scaled(X, 3), BLOCK=16) == X * 3).all()
    assert (_run(by_field, Swapped(3, X), BLOCK=16) == X * 3).all()
    assert (_run(by_place, Scaled(X, 3), BLOCK=16) == X * 3).all()
    assert (_run(by_place, (X, 3), BLOCK=16) == X * 3).all()


def test_none_in_a_tuple_is_a_constant() -> None:
    for _ in range(2):
        assert (_run(optional, (X, None), BLOCK=16) == X).all()
        assert (_run(optional, (X, X), BLOCK=16) == X * 2).all()


def test_a_named_tuple_is_a_constexpr() -> None:
    for block in (Block(16, 2.0), Block(8, 3.0), Block(16, 4.0)):
        out = _run(filled, block)
        assert (out[: block.size] == block.fill).all()
        assert (out[block.size :] == 0).all()


def test_a_declared_grid_a_function_and_methods_take_tuples() -> None:
    out = np.zeros(16, "float32")
    declared(out, (X, 3), 16)
    assert (out == X * 3).all()
    seen: list[object] = []
    declared[lambda known: (seen.append(known["xs"][1]), (2,))[1]](out, (X, 4), 16, BLOCK=8)
    assert (out == X * 4).all()
    assert seen == [4]
    assert "declared" in declared.explain(out, (X, 3), 16)
    assert declared.compiled(out, (X, 3), 16).config is not None
    bound = declared.bind(out, (X, 3), 16)
    bound(out, (X, 5), 16)
    assert (out == X * 5).all()
    with pytest.raises(ArgumentError, match="was bound with tuples"):
        bound(out, (X, 5, 6), 16)


def test_checks_see_what_is_behind_a_tuple() -> None:
    out = np.zeros(16, "float32")
    silo.check(by_place)[(1,)](out, (X, 3), BLOCK=16)
    assert (out == X * 3).all()
    with pytest.raises(CheckError, match="out of bounds"):
        silo.check(by_place)[(1,)](out, (X[:8].copy(), 3), BLOCK=16)


def test_other_things_are_refused() -> None:
    with pytest.raises(ArgumentError, match="got a list"):
        _run(by_place, [X, 3], BLOCK=16)
    deep: Any = X
    for _ in range(20):
        deep = (deep,)
    with pytest.raises(ArgumentError, match="within each other"):
        _run(by_place, deep, BLOCK=16)


def test_shapes_name_values_by_their_path() -> None:
    shape = shape_of((1, Scaled(2, (3,))))
    assert shape.names("a") == ("a.0", "a.1.array", "a.1.factor.0")
    assert shape == shape_of((5, Scaled(6, (7,))))
    assert shape != shape_of((5, Swapped(6, (7,))))
    made = shape.made("a", lambda name, _place: name)
    assert made[1].array == "a.1.array"
