"""Every operation that is not elementwise, over element types, shapes and edges, in both schedules, against numpy."""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("triton", reason="kernels are lowered by Triton")

import triton
import triton.language as tl

from cpu_atomics import atomic_cases, waiting_cases
from cpu_cases import FLOATS, INTS, RNG, Case, bf16, values
from cpu_samples import MODES, _facts, module_of, needs_compiler
from fuzz.batch import compile_parts, part_of
from fuzz.lowered import Lowered
from silo.kinds.triton.cpu.cpu_jobs import job_layout
from silo.kinds.triton.front.operations.operation_table import NO_EFFECT, STRUCTURAL
from silo.kinds.triton.front.ssa import Operation
from silo.kinds.triton.front.triton_source import TritonSource

pytestmark = [needs_compiler, pytest.mark.filterwarnings("ignore:tl.cat")]

# ---- memory


@triton.jit
def moved(x, out, n, stride, start, fill, E: tl.constexpr, OTHER: tl.constexpr):
    i = tl.arange(0, E)
    if OTHER:
        row = tl.load(x + start + i * stride, mask=i < n, other=fill)
    else:
        row = tl.load(x + start + i * stride, mask=i < n)
    tl.store(out + i, row)


@triton.jit
def placed(x, out, n, stride, start, E: tl.constexpr):
    i = tl.arange(0, E)
    tl.store(out + start + i * stride, tl.load(x + i), mask=i < n)


@triton.jit
def cube(x, out, rows, columns, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    a, b, c = tl.arange(0, A), tl.arange(0, B), tl.arange(0, C)
    place = a[:, None, None] * (B * C) + b[None, :, None] * C + c[None, None, :]
    keep = (b[None, :, None] < rows) & (c[None, None, :] < columns)
    tile = tl.load(x + place, mask=keep, other=7)
    tl.store(out + place, tile + tile, mask=(a[:, None, None] < A) & (c[None, None, :] > 0))


@triton.jit
def one(x, out, at):
    tl.store(out + at, tl.load(x + at) + tl.load(x))


# Extent, elements let through, stride, start.
_PLACES = ((16, 11, 1, 0), (16, 16, 2, 3), (16, 13, -2, 40), (16, 9, 0, 5), (2, 1, 1, 1), (1, 1, 3, 2), (1, 0, 1, 0))


def memory_cases() -> Iterator[Case]:
    for dtype in (*INTS, *FLOATS):
        x = values(70, dtype)
        for extent, n, stride, start in (
            (16, 11, 1, 0),
            (16, 16, 2, 3),
            (16, 13, -2, 40),
            (16, 9, 0, 5),
            (2, 1, 1, 1),
            (1, 1, 3, 2),
            (1, 0, 1, 0),
        ):
            i = np.arange(extent)
            source = np.where(i < n, x[np.clip(start + i * stride, 0, 69)], np.array(3).astype(dtype))
            arguments = {"x": x, "out": np.zeros(extent, dtype), "n": n, "stride": stride, "start": start, "fill": 3}
            yield Case(moved, {**arguments, "E": extent, "OTHER": True}, {"out": source})
        bare = np.where(np.arange(16) < 5, x[:16], np.array(0).astype(dtype))
        arguments = {"x": x, "out": values(16, dtype), "n": 5, "stride": 1, "start": 0, "fill": 0}
        yield Case(moved, {**arguments, "E": 16, "OTHER": False}, {"out": bare})
    for extent, n, stride, start in ((16, 13, 3, 1), (16, 16, -1, 20), (8, 3, 1, 0), (1, 1, 1, 4)):
        x, out = values(16, np.int32), np.full(60, -9, np.int32)
        expected = out.copy()
        for i in range(min(n, extent)):
            expected[start + i * stride] = x[i]
        arguments = {"x": x, "out": out, "n": n, "stride": stride, "start": start, "E": extent}
        yield Case(placed, arguments, {"out": expected})
    for shape, rows, columns in (((2, 4, 8), 3, 5), ((1, 2, 2), 2, 2), ((4, 1, 16), 1, 15), ((2, 8, 1), 0, 1)):
        x = values(shape, np.float32)
        out = np.full(shape, -1.0, np.float32)
        keep = (np.arange(shape[1])[None, :, None] < rows) & (np.arange(shape[2])[None, None, :] < columns)
        expected = np.where(np.arange(shape[2]) > 0, 2 * np.where(keep, x, 7), out).astype(np.float32)
        names = dict(zip("ABC", shape, strict=True))
        yield Case(cube, {"x": x, "out": out, "rows": rows, "columns": columns, **names}, {"out": expected})
    x = values(8, np.int64)
    expected = np.zeros(8, np.int64)
    expected[5] = x[5] + x[0]
    yield Case(one, {"x": x, "out": np.zeros(8, np.int64), "at": 5}, {"out": expected})


# ---- reductions and scans


@triton.jit
def product(a, b):
    return a * b


@triton.jit
def farthest(a, i, b, j):
    take = (a > b) | ((a == b) & (i < j))
    return tl.where(take, a, b), tl.where(take, i, j)


@triton.jit
def reduced(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, KIND: tl.constexpr):
    place = tl.reshape(tl.arange(0, A * B * C), (A, B, C))
    tile = tl.load(x + place)
    if KIND == "sum":
        found = tl.sum(tile, AXIS)
    elif KIND == "max":
        found = tl.max(tile, AXIS)
    elif KIND == "min":
        found = tl.min(tile, AXIS)
    elif KIND == "xor":
        found = tl.xor_sum(tile, AXIS)
    elif KIND == "product":
        found = tl.reduce(tile, AXIS, product)
    elif KIND == "argmax":
        found = tl.argmax(tile, AXIS)
    elif KIND == "argmin":
        found = tl.argmin(tile, AXIS)
    else:
        found, _ = tl.reduce((tile, place), AXIS, farthest)
    found = tl.reshape(found, (A * B * C // (A if AXIS == 0 else B if AXIS == 1 else C),))
    count: tl.constexpr = A * B * C // (A if AXIS == 0 else B if AXIS == 1 else C)
    tl.store(out + tl.arange(0, count), found.to(out.dtype.element_ty))


def reduction_cases() -> Iterator[Case]:
    plain = {"sum": np.sum, "max": np.max, "min": np.min, "product": np.prod, "argmax": np.argmax, "argmin": np.argmin}
    for dtype in (*INTS, *FLOATS):
        for place, (kind, function) in enumerate({**plain, "xor": np.bitwise_xor.reduce, "farthest": np.max}.items()):
            if kind == "xor" and dtype in FLOATS:
                continue
            shape = ((2, 4, 8), (4, 2, 2), (1, 16, 2), (8, 1, 4))[place % 4]
            axis = (place + place // 4 + np.dtype(dtype).itemsize) % 3
            x = values(shape, dtype) if kind != "product" else RNG.integers(1, 3, shape).astype(dtype)
            wide = x.astype(np.float64) if dtype in FLOATS else x.astype(object if kind == "product" else np.int64)
            kept = np.int32 if kind.startswith("arg") else dtype
            expected = np.asarray(function(wide, axis=axis)).reshape(-1)
            if kind == "product" and dtype not in FLOATS:
                bits = np.dtype(dtype).itemsize * 8
                expected = np.array([int(v) % (1 << bits) for v in expected], np.uint64)
            expected = expected.astype(kept)
            names = dict(zip("ABC", shape, strict=True))
            arguments = {"x": x, "out": np.zeros_like(expected), **names, "AXIS": axis, "KIND": kind}
            yield Case(reduced, arguments, {"out": expected})


@triton.jit
def affine(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def scanned(x, out, A: tl.constexpr, B: tl.constexpr, AXIS: tl.constexpr, KIND: tl.constexpr, BACK: tl.constexpr):
    place = tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :]
    tile = tl.load(x + place)
    if KIND == "sum":
        found = tl.cumsum(tile, AXIS, reverse=BACK)
    elif KIND == "product":
        found = tl.cumprod(tile, AXIS, reverse=BACK)
    else:
        _, found = tl.associative_scan((tile, tile), AXIS, affine, reverse=BACK)
    tl.store(out + place, found.to(out.dtype.element_ty))


def scan_cases() -> Iterator[Case]:
    for dtype in (np.int32, np.int64, np.float32, np.float64):
        for shape, axis in (((4, 8), 0), ((4, 8), 1), ((1, 16), 1), ((16, 1), 0), ((2, 2), 1)):
            for back in (False, True):
                x = RNG.integers(-1, 3, shape).astype(dtype)
                turned = np.flip(x, axis) if back else x
                rows = np.moveaxis(turned, axis, 0)
                scale, running = np.ones_like(rows[0]), np.zeros_like(rows[0])
                carried = []
                for row in rows:
                    scale, running = scale * row, running * row + row
                    carried.append(running)
                kinds = {
                    "sum": np.cumsum(turned, axis),
                    "product": np.cumprod(turned, axis),
                    "affine": np.moveaxis(np.array(carried), 0, axis),
                }
                kind = ("sum", "product", "affine")[(axis + back + shape[0] + np.dtype(dtype).itemsize) % 3]
                found = np.flip(kinds[kind], axis) if back else kinds[kind]
                names = {"A": shape[0], "B": shape[1], "AXIS": axis, "KIND": kind, "BACK": back}
                yield Case(scanned, {"x": x, "out": np.zeros(shape, dtype), **names}, {"out": found.astype(dtype)})


# ---- shapes


@triton.jit
def shaped(x, out, A: tl.constexpr, B: tl.constexpr, KIND: tl.constexpr):
    a, b = tl.arange(0, A), tl.arange(0, B)
    flat = tl.arange(0, A * B)
    tile = tl.load(x + a[:, None] * B + b[None, :])
    if KIND == "trans":
        found = tl.reshape(tl.trans(tile), (A * B,))
    elif KIND == "permute":
        found = tl.reshape(tl.permute(tl.reshape(tile, (A, B // 2, 2)), (2, 0, 1)), (A * B,))
    elif KIND == "join":
        left, right = tl.split(tl.reshape(tile, (A * B // 2, 2)))
        found = tl.reshape(tl.join(right, left), (A * B,))
    elif KIND == "gather":
        places = tl.broadcast_to(((b * 3 + 1) % B)[None, :], (A, B))
        found = tl.reshape(tl.gather(tile, places, 1), (A * B,))
    elif KIND == "gather rows":
        places = tl.broadcast_to(((a + 1) % A)[:, None], (A, B))
        found = tl.reshape(tl.gather(tile, places, 0), (A * B,))
    elif KIND == "broadcast":
        row = tl.load(x + b)
        found = tl.reshape(tl.broadcast_to(tl.expand_dims(row, 0), (A, B)), (A * B,))
    else:
        found = tl.reshape(tl.flip(tile, 1), (A * B,))
    tl.store(out + flat, found)


@triton.jit
def joined(x, out, E: tl.constexpr):
    i = tl.arange(0, E)
    both = tl.cat(tl.load(x + i), tl.load(x + E + i), can_reorder=True)
    tl.store(out, tl.sum(both))


@triton.jit
def pair(x, out):
    left, right = tl.split(tl.load(x + tl.arange(0, 2)))
    tl.store(out, right - left)


@triton.jit
def sorted_rows(x, out, A: tl.constexpr, B: tl.constexpr):
    place = tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(out + place, tl.sort(tl.load(x + place)))


@triton.jit
def counted(x, out, n, E: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, E)
    tl.store(out + tl.arange(0, BINS), tl.histogram(tl.load(x + i), BINS, mask=i < n))


def shape_cases() -> Iterator[Case]:
    for dtype in (np.int8, np.uint16, np.int64, np.float16, bf16, np.float64):
        for a, b in ((4, 8), (2, 2), (1, 4), (16, 2)):
            x = values((a, b), dtype)
            pairs = x.reshape(-1, 2)
            expected = {
                "trans": x.T,
                "permute": x.reshape(a, b // 2, 2).transpose(2, 0, 1),
                "join": pairs[:, ::-1],
                "gather": x[:, (np.arange(b) * 3 + 1) % b],
                "gather rows": x[(np.arange(a) + 1) % a],
                "broadcast": np.broadcast_to(x.reshape(-1)[:b], (a, b)),
                "flip": x[:, ::-1],
            }
            names = list(expected)
            for kind in names[
                (np.dtype(dtype).num + a) % 3 :: 3
            ]:  # every kind over every shape, with some of the types
                found = np.ascontiguousarray(expected[kind]).reshape(-1)
                arguments = {"x": x, "out": np.zeros(a * b, dtype), "A": a, "B": b, "KIND": kind}
                yield Case(shaped, arguments, {"out": found})
    x = values(32, np.int32)
    yield Case(joined, {"x": x, "out": np.zeros(1, np.int32), "E": 16}, {"out": x.sum(keepdims=True).astype(np.int32)})
    x = values(2, np.int16)
    yield Case(pair, {"x": x, "out": np.zeros(1, np.int16)}, {"out": x[1:] - x[:1]})
    for dtype in (np.int32, np.float32):
        x = values((4, 16), dtype)
        yield Case(sorted_rows, {"x": x, "out": np.zeros_like(x), "A": 4, "B": 16}, {"out": np.sort(x, 1)})
    x = RNG.integers(0, 8, 64).astype(np.int32)
    counts = np.bincount(x[:50], minlength=8).astype(np.int32)
    yield Case(counted, {"x": x, "out": np.zeros(8, np.int32), "n": 50, "E": 64, "BINS": 8}, {"out": counts})


# ---- control


@triton.jit
def apart(a, b):
    return a * 3 - b


apart = triton.jit(apart.fn, noinline=True)


@triton.jit
def steps(x, out, n, low, E: tl.constexpr):
    i = tl.arange(0, E)
    a, b = tl.load(x + i), tl.load(x + E + i)
    count = 0
    for k in range(low, n, 2):
        a, b = b, a + b * k
        count += k
    while count > 3:
        count = count // 2
        if count % 2 == 0:
            a += 1
        else:
            b = b - a
    tl.store(out + i, a)
    tl.store(out + E + i, b)
    tl.store(out + 2 * E, count)


@triton.jit
def pointers(x, out, n, E: tl.constexpr):
    p = x + tl.arange(0, E)
    total = tl.zeros((E,), tl.int32)
    for _ in range(n):
        total += tl.load(p)
        p += E
    tl.store(out + tl.arange(0, E), total)


@triton.jit
def leaves(x, out, n):
    pid = tl.program_id(0) + tl.program_id(1) * tl.num_programs(0)
    if pid >= n:
        return
    value = tl.load(x + pid)
    if value < 0:
        tl.store(out + pid, -1)
        if value < -1:
            return
        value += 100
    tl.store(out + pid, apart(value, pid))


@triton.jit
def either(a, b):
    return (a - b if a > b else b - a), a + b


@triton.jit
def mapped(x, y, out, E: tl.constexpr):
    i = tl.arange(0, E)
    tl.assume(E > 1)
    low, high = tl.map_elementwise(either, tl.load(x + i), tl.load(y + i))
    tl.debug_barrier()
    tl.store(out + i, low)
    tl.store(out + E + i, high)


@triton.jit
def multiplied(x, y, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    a, b, c = tl.arange(0, A), tl.arange(0, B), tl.arange(0, C)
    left, right = tl.load(x + a[:, None] * B + b[None, :]), tl.load(y + b[:, None] * C + c[None, :])
    tl.store(out + a[:, None] * C + c[None, :], tl.dot(left, right).to(out.dtype.element_ty))


@triton.jit(debug=True)
def checked(x, out, n):
    i = tl.arange(0, 8)
    row = tl.load(x + i)
    tl.device_assert(row < 100, "small")
    if n > 100:
        tl.device_print("row", row)
    tl.store(out + i, row)


@triton.jit
def scaled(x, sx, y, sy, out):
    i, j, k = tl.arange(0, 16), tl.arange(0, 32), tl.arange(0, 64)
    left, right = tl.load(x + i[:, None] * 64 + k[None, :]), tl.load(y + k[:, None] * 32 + j[None, :])
    a, b = (
        tl.load(sx + i[:, None] * 2 + tl.arange(0, 2)[None, :]),
        tl.load(sy + j[:, None] * 2 + tl.arange(0, 2)[None, :]),
    )
    tl.store(out + i[:, None] * 32 + j[None, :], tl.dot_scaled(left, a, "e5m2", right, b, "e5m2"))


def _stepped(x: np.ndarray, n: int, low: int) -> np.ndarray:
    half = x.size // 2
    a, b, count = x[:half].astype(np.int64), x[half:].astype(np.int64), 0
    for k in range(low, n, 2):
        a, b = b, a + b * k
        count += k
    while count > 3:
        count //= 2
        if count % 2 == 0:
            a = a + 1
        else:
            b = b - a
    return np.concatenate([a, b, [count]]).astype(np.int32)


def control_cases() -> Iterator[Case]:
    for n, low in ((0, 0), (5, 0), (9, 3), (4, 3), (1, 1)):
        x = values(16, np.int32)
        arguments = {"x": x, "out": np.zeros(17, np.int32), "n": n, "low": low, "E": 8}
        yield Case(steps, arguments, {"out": _stepped(x, n, low)})
    for n in (0, 1, 3):
        x = values(64, np.int32)
        expected = x[: n * 16].reshape(n, 16).sum(0).astype(np.int32)
        yield Case(pointers, {"x": x, "out": np.ones(16, np.int32), "n": n, "E": 16}, {"out": expected})
    x = values(6, np.int32)
    index = np.arange(6)
    expected = np.where(index < 5, np.where(x < -1, -1, np.where(x < 0, x + 100, x) * 3 - index), 9).astype(np.int32)
    yield Case(leaves, {"x": x, "out": np.full(6, 9, np.int32), "n": 5}, {"out": expected}, (3, 2))
    x = values(8, np.int32)
    # That they change nothing; what they say is tested in test_cpu_messages.py.
    yield Case(checked, {"x": x, "out": np.zeros(8, np.int32), "n": 5}, {"out": x})
    x, y = values(16, np.int32), values(16, np.int32)
    expected = np.concatenate([np.abs(x - y), x + y])
    yield Case(mapped, {"x": x, "y": y, "out": np.zeros(32, np.int32), "E": 16}, {"out": expected})
    sums = {np.float32: np.float32, np.float16: np.float32, bf16: np.float32, np.float64: np.float64, np.int8: np.int32}
    for dtype, total in sums.items():
        for a, b, c in ((16, 16, 16), (1, 2, 4), (4, 32, 1)):
            x, y = values((a, b), dtype), values((b, c), dtype)
            expected = (x.astype(np.float64) @ y.astype(np.float64)).astype(total)
            names = {"A": a, "B": b, "C": c}
            yield Case(multiplied, {"x": x, "y": y, "out": np.zeros((a, c), total), **names}, {"out": expected})


def scaled_cases() -> Iterator[Case]:
    """Powers of two scale blocks of 32 along the inner axis."""
    x, y = values((16, 64), np.float32), values((64, 32), np.float32)
    sx, sy = RNG.integers(125, 130, (16, 2)).astype(np.uint8), RNG.integers(125, 130, (32, 2)).astype(np.uint8)
    wide = x * np.repeat(2.0 ** (sx.astype(np.float64) - 127), 32, 1)
    tall = y * np.repeat(2.0 ** (sy.astype(np.float64) - 127), 32, 1).T
    narrow = [array.astype(ml_dtypes.float8_e5m2).view(np.uint8) for array in (x, y)]
    arguments = {"x": narrow[0], "sx": sx, "y": narrow[1], "sy": sy, "out": np.zeros((16, 32), np.float32)}
    yield Case(scaled, arguments, {"out": (wide @ tall).astype(np.float32)})


GROUPS = {
    "scaled dots": scaled_cases,
    "memory": memory_cases,
    "reductions": reduction_cases,
    "scans": scan_cases,
    "shapes": shape_cases,
    "atomics": atomic_cases,
    "waiting": waiting_cases,
    "control": control_cases,
}


def lowered(case: Case) -> Lowered:
    """The case's module, and what of its parameters is left."""
    facts = {name: _facts(value) for name, value in case.arguments.items()}
    signature, found = TritonSource.of(case.kernel).specialize(facts)
    module = module_of(case.kernel, case.arguments)
    return Lowered(module, job_layout(signature, found, module), "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("group", GROUPS)
def test_operations_that_are_not_elementwise_give_what_numpy_gives(group, mode):
    cases = list(GROUPS[group]())
    parts = [part_of(lowered(case), mode, place, contract=False) for place, case in enumerate(cases)]
    kernels = compile_parts(parts, contract=False, optimize=mode == "optimized")
    for case, kernel in zip(cases, kernels, strict=True):
        plain = {name: value for name, value in case.arguments.items() if not isinstance(value, np.ndarray)}
        label = f"{case.kernel.fn.__name__} {plain}"
        assert not isinstance(kernel, str), f"{label}: {kernel}"
        given = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in case.arguments.items()}
        kernel.run(case.grid, {slot.name: given[slot.name] for slot in kernel.launch.layout})
        for name, expected in case.expected.items():
            found = given[name]
            assert found.dtype == expected.dtype, label
            np.testing.assert_array_equal(found.reshape(-1), expected.reshape(-1), f"{label} {found.dtype}: {name}")


def names_of(case: Case) -> set[str]:
    """The operations of a case's module."""
    return {operation.name for operation in lowered(case).module.walk()}


def test_no_operation_is_without_a_test():
    cases = [case for group in GROUPS.values() for case in group()]
    kinds = {(case.kernel.fn.__name__, case.arguments.get("KIND")): case for case in cases}
    seen: set[str] = set().union(*(names_of(case) for case in kinds.values()))
    # One barrier and one hint stand for all that have no effect; the next test says that they have none.
    unknown = set() if hasattr(tl, "atomic_poll") else {"tt.atomic_load", "tt.atomic_poll", "tt.atomic_store"}
    # Inline assembly, which passes take apart before they render it, has test_cpu_inline_texts.
    wanted = STRUCTURAL - NO_EFFECT - unknown - {"tt.elementwise_inline_asm"}
    assert seen >= wanted, wanted - seen
    assert seen & NO_EFFECT


@pytest.mark.parametrize("name", sorted(NO_EFFECT - {"llvm.intr.assume"}))
@pytest.mark.parametrize("mode", MODES)
def test_barriers_change_nothing(name, mode):
    (case,) = (case for case in control_cases() if case.kernel is mapped)
    one = lowered(case)
    block = one.module.entry.regions[0].blocks[0]
    texts = []
    for replaced in (False, True):
        for operation in block.operations:
            if replaced and operation.name in NO_EFFECT and not operation.operands:
                operation.name = name
        texts.append(part_of(one, mode, 0, contract=False).text)
        if not replaced:
            block.operations.insert(1, Operation(name, [], [], {}, block=block))
    assert texts[0] == texts[1]
