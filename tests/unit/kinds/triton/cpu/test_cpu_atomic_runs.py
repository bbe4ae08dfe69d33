"""Atomics on successive places: several elements a step where threads may meet, plain updates where none does."""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

import silo  # noqa: E402
from cpu_samples import MODES, compiled, module_of, needs_compiler, run  # noqa: E402
from silo.kinds.triton.cpu.code_options import CpuOptions  # noqa: E402
from silo.kinds.triton.cpu.emit.kernel_text import emit_c  # noqa: E402
from silo.launch.cpu_objects import context_locking  # noqa: E402

pytestmark = needs_compiler
DTYPES = ["int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64"]


@triton.jit
def add_row(rows, values, sums, d, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.atomic_add(sums + tl.load(rows + p) * d + i, tl.load(values + p * d + i, mask=i < d, other=0), mask=i < d)


@triton.jit
def update(values, sums, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(values + i, mask=i < n, other=0)
    chosen = (i < n) & (v % 3 != 1)
    if KIND == "max":
        tl.atomic_max(sums + i, v, mask=chosen)
    elif KIND == "min":
        tl.atomic_min(sums + i, v, mask=chosen)
    elif KIND == "and":
        tl.atomic_and(sums + i, v, mask=chosen)
    elif KIND == "or":
        tl.atomic_or(sums + i, v, mask=chosen)
    elif KIND == "xor":
        tl.atomic_xor(sums + i, v, mask=chosen)
    else:
        tl.atomic_add(sums + i, v, mask=chosen)


@triton.jit
def column_extremes(x, high, low, rows, d, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * d + i, mask=i < d, other=0.0)
    tl.atomic_max(high + i, v, mask=i < d)
    tl.atomic_min(low + i, v, mask=i < d)


@triton.jit
def add_tile(values, sums, d, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    place = sums + (i + tl.program_id(0)) * d + j
    tl.atomic_add(place, tl.load(values + i * COLUMNS + j) * 2, mask=(j < d) & (i < 5), sem="relaxed")


@triton.jit
def add_for_everyone(sums, BLOCK: tl.constexpr):
    tl.atomic_add(sums + tl.arange(0, BLOCK), 1.0, scope="sys")


@triton.jit
def add_and_tell(sums, BLOCK: tl.constexpr):
    tl.atomic_add(sums + tl.arange(0, BLOCK), 1.0)
    tl.device_print("added", tl.program_id(0))


@triton.jit
def count_slowly(sums, turns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for _ in range(turns):
        tl.atomic_add(sums + i, 1.0)


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def bits(array):
    return array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array


WAYS = ["alone", "among others", "locking"]


def launched(loaded, programs, arguments, how, threads=2):
    """Run the kernel as the threads of a launch do, or the only one."""
    if how == "alone":
        loaded.run((programs,), {slot.name: arguments[slot.name] for slot in loaded.launch.layout})
        return
    values = [arguments[slot.name] for slot in loaded.launch.layout]
    cells = [
        loaded._cell(slot.name, slot.type, value) for slot, value in zip(loaded.launch.layout, values, strict=True)
    ]
    addresses = (ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells))
    extents = (ctypes.c_uint32 * 3)(programs, 1, 1)

    def part(begin):
        scratch = np.empty(loaded.launch.scratch_bytes + 64, np.uint8)
        at = -(-scratch.ctypes.data // 64) * 64
        context = context_locking() if how == "locking" else None
        place = ctypes.addressof(context) if context is not None else None
        return loaded._entry(addresses, extents, begin, min(begin + 8, programs), at, place)

    with ThreadPoolExecutor(threads) as pool:
        assert not any(pool.map(part, range(0, programs, 8)))


# Rows that are whole vectors, that are not, and that begin anywhere.
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("d", [64, 63, 100, 7, 2])
@pytest.mark.parametrize("name", DTYPES)
def test_rows_are_added(name, d, how):
    dtype, random = dtype_of(name), np.random.default_rng(d)
    rows = random.integers(0, 5, 24).astype(np.int64)
    values = random.integers(-3 if dtype.kind != "u" else 0, 4, 24 * d).astype(dtype)
    expected = np.zeros((5, d), dtype)
    np.add.at(expected, rows, values.reshape(24, d))
    sums = np.zeros_like(expected)
    arguments = {"rows": rows, "values": values, "sums": sums, "d": d, "BLOCK": 128}
    loaded = compiled(add_row, "optimized", **arguments)
    arguments.update(values=bits(values), sums=bits(sums))
    launched(loaded, 24, arguments, how)
    np.testing.assert_array_equal(sums, expected)


_RESULTS = {
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "add": np.add,
}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("kind", sorted(_RESULTS))
def test_only_chosen_elements_change(kind, name, how):
    random = np.random.default_rng(7)
    values, sums = (random.integers(0, 2**63, 1000).astype(name) for _ in range(2))
    before, n = sums.copy(), 990
    arguments = {"values": values, "sums": sums, "n": n, "KIND": kind, "BLOCK": 256}
    loaded = compiled(update, "optimized", **arguments)
    launched(loaded, 4, arguments, how)
    remainder = np.fmod(values, np.array(3, name))  # as C has it
    expected = np.where((np.arange(1000) < n) & (remainder != 1), _RESULTS[kind](before, values), before)
    np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize("how", WAYS)
def test_extremes_of_columns(how):
    x = np.random.default_rng(1).standard_normal((50, 77)).astype(np.float32)
    high, low = np.full(77, -np.inf, np.float32), np.full(77, np.inf, np.float32)
    arguments = {"x": x, "high": high, "low": low, "rows": 50, "d": 77, "BLOCK": 128}
    loaded = compiled(column_extremes, "optimized", **arguments)
    launched(loaded, 50, arguments, how)
    np.testing.assert_array_equal(high, x.max(0))
    np.testing.assert_array_equal(low, x.min(0))


@triton.jit
def extremes_at(places, values, high, low, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at, v = tl.load(places + i, mask=i < n, other=0), tl.load(values + i, mask=i < n)
    tl.atomic_max(high + at, v, mask=i < n)
    tl.atomic_min(low + at, v, mask=i < n, sem="relaxed")


@triton.jit
def extremes_of_all(values, high, low, BLOCK: tl.constexpr):
    v = tl.load(values + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_max(high + tl.arange(0, BLOCK), v)
    tl.atomic_min(low, tl.min(v, 0))


@triton.jit
def highest_before(values, high, before, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(before + i, tl.atomic_max(high + i, tl.load(values + i)))


def float_bits(array):
    return array.view(np.int32 if array.dtype == np.float32 else np.int64)


def awkward(name, count):
    """Floats of both signs, among them zeros, infinities, subnormal numbers and NaN of both signs."""
    random = np.random.default_rng(3)
    few = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-310, -1e-310, 1e-40, -1e-40], name)
    return np.where(random.random(count) < 0.5, random.choice(few, count), random.standard_normal(count)).astype(name)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_extremes_of_floats_are_those_of_two_atomics(name, how):
    """The reference code keeps the two atomics of integers that Triton makes of each."""
    n, random = 990, np.random.default_rng(4)
    values, places = awkward(name, 1024), random.integers(0, 40, 1024)
    found = {}
    for mode in MODES:
        high, low = (awkward(name, 64)[start:][:40].copy() for start in (0, 24))
        arguments = {"places": places, "values": values, "high": high, "low": low, "n": n, "BLOCK": 256}
        loaded = compiled(extremes_at, mode, **arguments)
        launched(loaded, 4, arguments, how if mode == "optimized" else "alone")
        found[mode] = float_bits(high), float_bits(low)
    np.testing.assert_array_equal(found["optimized"], found["reference"])


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_extremes_without_a_mask_and_of_one_place(name, how):
    found = {}
    for mode in MODES:
        high, low = awkward(name, 64), awkward(name, 1)
        arguments = {"values": awkward(name, 640), "high": high, "low": low, "BLOCK": 64}
        launched(compiled(extremes_of_all, mode, **arguments), 10, arguments, how if mode == "optimized" else "alone")
        found[mode] = [*float_bits(high), *float_bits(low)]
    assert found["optimized"] == found["reference"]


def test_an_extreme_of_floats_is_one_atomic_of_vectors_if_its_old_value_is_unused():
    x = np.zeros(640, np.float32)
    given = {"values": x, "high": x, "low": x, "BLOCK": 64}
    text = emit_c(module_of(extremes_of_all, given), CpuOptions()).source.split("program_x")[-1]
    assert "silo_float_max_plain_i32(&" in text
    assert "silo_float_max_locked_i32" in text
    assert "silo_atomic_float_min_i32" in text
    assert "silo_umin" not in text
    used = {"values": x, "high": x, "before": x, "BLOCK": 64}
    text = emit_c(module_of(highest_before, used), CpuOptions()).source.split("program_x")[-1]
    assert "silo_atomic_umin_i32" in text
    assert "silo_float_max" not in text


@pytest.mark.parametrize("mode", MODES)
def test_rows_of_a_tile_that_lie_on_one_another(mode):
    values, sums = np.arange(8 * 32, dtype=np.float32), np.zeros(20 * 19, np.float32)
    run(add_tile, (7,), mode, values=values, sums=sums, d=19, ROWS=8, COLUMNS=32)
    expected = np.zeros((20, 19), np.float32)
    for program in range(7):
        expected[program : program + 5] += values.reshape(8, 32)[:5, :19] * 2
    np.testing.assert_array_equal(sums, expected.ravel())


@pytest.mark.parametrize("kernel", [add_for_everyone, add_and_tell])
def test_who_may_be_waited_for_is_not_alone(kernel):
    text = emit_c(module_of(kernel, {"sums": np.zeros(64, np.float32), "BLOCK": 64}), CpuOptions()).source
    assert "turns->enter(context, 0)" in text


@triton.jit
def exchange_first(sums, other, turns, BLOCK: tl.constexpr):
    for _ in range(turns):
        tl.atomic_add(sums + tl.arange(0, BLOCK), 1.0)
        tl.atomic_xchg(other, 1.0)


def test_a_kernel_asks_for_locks_where_all_its_atomics_can():
    sums = np.zeros(64, np.float32)
    one = emit_c(module_of(count_slowly, {"sums": sums, "turns": 9, "BLOCK": 64}), CpuOptions()).source
    two = emit_c(module_of(exchange_first, {"sums": sums, "other": sums, "turns": 9, "BLOCK": 64}), CpuOptions()).source
    assert "turns->enter(context, 3)" in one
    assert "turns->enter(context, 1)" in two


@pytest.mark.parametrize("threads", [1, 2])
def test_launches_at_once_lose_nothing(threads):
    """One that is alone, or locks, and one that does neither: each as far as the other lets it."""
    adding, mixed = (silo.kernel(one, space={"cpu_threads": [threads]}) for one in (count_slowly, exchange_first))
    sums, other, turns, launches = np.zeros(64, np.float32), np.zeros(1, np.float32), 5000, 12
    adding[(1,)](sums, 1, BLOCK=64)
    mixed[(1,)](sums, other, 0, BLOCK=64)
    start = threading.Barrier(3)

    def work(number):
        start.wait()
        for _ in range(launches):
            if number == 2:
                mixed[(8,)](sums, other, turns, BLOCK=64)
            else:
                adding[(8,)](sums, turns, BLOCK=64)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    assert sums.tolist() == [3 * launches * 8 * turns + 1] * 64
