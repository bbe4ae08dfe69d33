"""Tests of single elementwise operations: each becomes a whole kernel over arrays, compiled in both modes."""
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from fuzz.batch import Part, compile_parts, part_of
from fuzz.kinds import KINDS, from_float64, to_float64
from fuzz.lowered import Lowered
from silo.core.launch_info import AbiType, LayoutSlot
from silo.kinds.triton.front.ssa import Dense
from silo.kinds.triton.front.ttir import parse_ttir
from silo.kinds.triton.front.verifier import verify

__all__ = ["SHAPES", "Row", "check", "floats", "integers"]

SHAPES = ((16,), (2, 4, 8), (1,), (2,), ())  # () means a scalar
_STORED = {"i1": "i8", "index": "i64"}  # the types in memory of types that cannot be stored
_INTEGER_EDGES = (0, 1, -1, 2, -2, 3, 7, -7)
_FLOAT_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 2.5, 3.5, 65504.0, -1e-7, 6e-8, 1e38, np.inf, -np.inf, np.nan)


@dataclass(frozen=True)
class Row:
    """One operation with the types of its operands and its result ("*i32" is a pointer).

    ``expected`` takes the operands' values (integers as int64 objects, floats as float64, bools as bool) and returns
    the result's values before they are rounded to their type. ``ulp`` is the allowed error in units in the last place.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    expected: Callable[..., object]
    ulp: float = 0
    attributes: Mapping[str, object] = field(default_factory=dict)
    values: Callable[[str], np.ndarray] | None = None

    def __str__(self) -> str:
        return f"{self.name} {', '.join(self.inputs)} -> {self.output} {dict(self.attributes)}"


def integers(kind: str) -> np.ndarray:
    """Return edge cases and random values of an integer type, as Python integers."""
    if kind == "i1":
        return np.array([False, True, True, False], object)
    bits = 64 if kind == "index" or kind.startswith("*") else int(kind[1:])
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    random = np.random.default_rng(bits).integers(low, high, 23, endpoint=True)
    return np.array([*_INTEGER_EDGES, low, low + 1, high, high - 1, *map(int, random)], object)


def floats(kind: str) -> np.ndarray:
    """Return edge cases and random values of a float type, as float64."""
    random = np.random.default_rng(1)
    with np.errstate(all="ignore"):
        wide = [*_FLOAT_EDGES, *(random.standard_normal(24) * np.exp(random.uniform(-4, 4, 24)))]
        return to_float64(from_float64(np.array(wide), kind), kind)


def _operands(row: Row) -> list[np.ndarray]:
    """Return the operands: all pairs of edge cases, then pairs of other values; their number is odd."""
    sources = [(row.values or (floats if _floating(kind) else integers))(kind) for kind in row.inputs]
    if not sources:
        return []
    if len(sources) == 1:
        pairs = [sources[0]]
    else:
        first, second = sources[0], sources[1]
        pairs = [np.repeat(first[:12], len(second[:12])), np.tile(second[:12], len(first[:12]))]
        count = max(len(first), len(second))
        tails = [np.resize(first, count), np.roll(np.resize(second, count), 5)]
        pairs = [np.concatenate([head, tail]) for head, tail in zip(pairs, tails, strict=True)]
        pairs += [np.roll(np.resize(other, len(pairs[0])), 3 + place) for place, other in enumerate(sources[2:])]
    length = len(pairs[0]) - (len(pairs[0]) % 2 == 0)
    return [pair[:length] for pair in pairs]


def _floating(kind: str) -> bool:
    return kind.startswith(("f", "bf"))


def _store(values: np.ndarray, kind: str) -> np.ndarray:
    """Return values in the form in which memory holds them."""
    kept = _STORED.get(kind, "i64" if kind.startswith("*") else kind)
    if _floating(kind):
        return from_float64(np.asarray(values, np.float64), kept)
    bits = int(kept[1:])
    wrapped = [(int(value) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)) for value in values]
    return np.array(wrapped, np.int64).astype(f"int{bits}")


def _type(kind: str, shape: tuple[int, ...]) -> str:
    element = f"!tt.ptr<{kind[1:]}>" if kind.startswith("*") else kind
    return f"tensor<{'x'.join(map(str, shape))}x{element}>" if shape else element


def _kernel(row: Row, shape: tuple[int, ...]) -> str:
    """Return the TTIR module of one row: each program computes one tile, ``n`` elements in all."""
    kinds = [*row.inputs, row.output]
    kept = [_STORED.get(kind, "i64" if kind.startswith("*") else kind) for kind in kinds]
    count = int(np.prod(shape))
    arguments = ", ".join(f"%p{i}: !tt.ptr<{kind}>" for i, kind in enumerate(kept))
    types = ", ".join(f"!tt.ptr<{kind}>" for kind in kept)
    index, mask = _type("i32", shape), _type("i1", shape)
    lines = [
        '"builtin.module"() ({',
        f'  "tt.func"() <{{function_type = ({types}, i32) -> (), sym_name = "oracle", sym_visibility = "public"}}> ({{',
        f"  ^bb0({arguments}, %n: i32):",
        '    %pid = "tt.get_program_id"() <{axis = 0 : i32}> : () -> i32',
        f'    %tile = "arith.constant"() <{{value = {count} : i32}}> : () -> i32',
        '    %start = "arith.muli"(%pid, %tile) : (i32, i32) -> i32',
    ]
    if shape:
        flat = f"tensor<{count}xi32>"
        lines += [
            f'    %range = "tt.make_range"() <{{end = {count} : i32, start = 0 : i32}}> : () -> {flat}',
            f'    %shaped = "tt.reshape"(%range) : ({flat}) -> {index}'
            if len(shape) > 1
            else f'    %shaped = "arith.addi"(%range, %range_zero) : ({flat}, {flat}) -> {flat}',
            f'    %spread = "tt.splat"(%start) : (i32) -> {index}',
            f'    %at = "arith.addi"(%spread, %shaped) : ({index}, {index}) -> {index}',
            f'    %limit = "tt.splat"(%n) : (i32) -> {index}',
        ]
        if len(shape) == 1:
            lines.insert(6, f'    %range_zero = "arith.constant"() <{{value = dense<0> : {flat}}}> : () -> {flat}')
    else:
        lines += [
            '    %zero = "arith.constant"() <{value = 0 : i32}> : () -> i32',
            '    %at = "arith.addi"(%start, %zero) : (i32, i32) -> i32',
            '    %limit = "arith.addi"(%n, %zero) : (i32, i32) -> i32',
        ]
    lines.append(f'    %mask = "arith.cmpi"(%at, %limit) <{{predicate = 2 : i64}}> : ({index}, {index}) -> {mask}')
    for place, kind in enumerate(row.inputs):
        lines += _read(place, kind, kept[place], shape)
    operands = ", ".join(f"%v{place}" for place in range(len(row.inputs)))
    read = ", ".join(_type(kind, shape) for kind in row.inputs)
    lines.append(f'    %result = "silo.operation"({operands}) : ({read}) -> {_type(row.output, shape)}')
    lines += _write(len(row.inputs), row.output, kept[-1], shape)
    lines += ['    "tt.return"() : () -> ()', "  }) {noinline = false} : () -> ()", "}) : () -> ()", ""]
    return "\n".join(lines)


def _pointers(place: int, kept: str, shape: tuple[int, ...]) -> list[str]:
    pointer, index = f"!tt.ptr<{kept}>", _type("i32", shape)
    tile = _type(f"*{kept}", shape)
    if not shape:
        return [f'    %q{place} = "tt.addptr"(%p{place}, %at) : ({pointer}, i32) -> {pointer}']
    return [
        f'    %s{place} = "tt.splat"(%p{place}) : ({pointer}) -> {tile}',
        f'    %q{place} = "tt.addptr"(%s{place}, %at) : ({tile}, {index}) -> {tile}',
    ]


def _read(place: int, kind: str, kept: str, shape: tuple[int, ...]) -> list[str]:
    tile, pointers, mask = _type(kept, shape), _type(f"*{kept}", shape), _type("i1", shape)
    name = f"v{place}" if kind == kept else f"m{place}"
    lines = _pointers(place, kept, shape)
    segments = "isVolatile = false, operandSegmentSizes = array<i32: 1, 1, 0>"
    lines.append(f'    %{name} = "tt.load"(%q{place}, %mask) <{{{segments}}}> : ({pointers}, {mask}) -> {tile}')
    if kind != kept:
        cast = {"i1": "arith.trunci", "index": "arith.index_cast"}.get(kind, "tt.int_to_ptr")
        lines.append(f'    %v{place} = "{cast}"(%m{place}) : ({tile}) -> {_type(kind, shape)}')
    return lines


def _write(place: int, kind: str, kept: str, shape: tuple[int, ...]) -> list[str]:
    tile, pointers, mask = _type(kept, shape), _type(f"*{kept}", shape), _type("i1", shape)
    lines = _pointers(place, kept, shape)
    name = "result"
    if kind != kept:
        cast = {"i1": "arith.extui", "index": "arith.index_cast"}.get(kind, "tt.ptr_to_int")
        lines.append(f'    %kept = "{cast}"(%result) : ({_type(kind, shape)}) -> {tile}')
        name = "kept"
    lines.append(f'    "tt.store"(%q{place}, %{name}, %mask) : ({pointers}, {tile}, {mask}) -> ()')
    return lines


def _lowered(row: Row, shape: tuple[int, ...]) -> Lowered:
    text = _kernel(row, shape)
    module = parse_ttir(text)
    (found,) = (operation for operation in module.walk() if operation.name == "silo.operation")
    found.name = row.name
    found.attributes = {
        key: Dense((value,), found.result.type) if key == "value" and shape else value
        for key, value in row.attributes.items()
    }
    verify(module)
    names = [f"p{place}" for place in range(len(row.inputs) + 1)]
    slots = (*(LayoutSlot(name, AbiType.POINTER) for name in names), LayoutSlot("n", AbiType.I32))
    return Lowered(module, slots, text)


def check(rows: Sequence[tuple[Row, tuple[int, ...]]], mode: str) -> None:
    """Run each row as a kernel over its shape and compare every element."""
    parts: list[Part] = [
        part_of(_lowered(row, shape), mode, place, contract=False) for place, (row, shape) in enumerate(rows)
    ]
    kernels = compile_parts(parts, contract=False, optimize=mode == "optimized")
    for (row, shape), kernel in zip(rows, kernels, strict=True):
        assert not isinstance(kernel, str), f"{row}: {kernel}"
        _run(row, shape, mode, kernel)


def _run(row: Row, shape: tuple[int, ...], mode: str, kernel) -> None:
    operands = _operands(row)
    count = len(operands[0]) if operands else 37
    stored = [_store(values, kind) for values, kind in zip(operands, row.inputs, strict=True)]
    with np.errstate(all="ignore"):
        expected = row.expected(*operands)
    wanted = np.full(count, expected) if np.ndim(expected) == 0 else np.asarray(expected)
    kept = _STORED.get(row.output, "i64" if row.output.startswith("*") else row.output)
    out = np.zeros(count + 3, KINDS[kept].storage)
    programs = -(-count // int(np.prod(shape)))
    kernel.run((programs,), {f"p{i}": array for i, array in enumerate([*stored, out])} | {"n": count})
    label = f"{row} over {shape or 'scalars'}, {mode}"
    assert not out[count:].any(), f"{label}: wrote past the end"
    wrong = _wrong(row, out[:count], wanted, kept)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        given = [values[at] for values in operands]
        pytest.fail(f"{label}: {given} gave {out[at]!r}, expected {wanted[at]!r}")


def _wrong(row: Row, found: np.ndarray, wanted: np.ndarray, kept: str) -> np.ndarray:
    if not _floating(row.output):
        return found != _store(wanted, kept)
    with np.errstate(all="ignore"):
        exact = np.asarray(wanted, np.float64)
        rounded = to_float64(from_float64(exact, kept), kept)
        values = to_float64(found, kept)
        same = (values == rounded) & (np.signbit(values) == np.signbit(rounded)) | np.isnan(values) & np.isnan(rounded)
        if not row.ulp:
            return ~same
        precision = KINDS[kept].precision
        least = {"f16": -24, "bf16": -133, "f32": -149, "f64": -1074}[kept]
        unit = np.exp2(np.maximum(np.floor(np.log2(np.abs(rounded))) - precision + 1, least))
        near = np.isfinite(values) & np.isfinite(rounded) & (np.abs(values - exact) <= row.ulp * unit)
        return ~(same | near)
