"""Sorting networks: recognised in what Triton spells out, run by the runtime, equal to the spelled-out form."""

from __future__ import annotations

import ctypes
import itertools
import tempfile

import numpy as np
import pytest

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from cpu_samples import both, module_of, needs_compiler, run  # noqa: E402
from silo.compile.c_compiler import find_compiler  # noqa: E402
from silo.drivers.cpu.levels import LEVELS, gather_facts, highest_level  # noqa: E402
from silo.kinds.triton.cpu import runtime  # noqa: E402
from silo.kinds.triton.cpu.analysis.networks import NO_FLIP, fold_networks, steps_of  # noqa: E402
from silo.kinds.triton.cpu.object_build import build, compile_flags  # noqa: E402
from silo.kinds.triton.front.operations.further_dialects import NETWORK  # noqa: E402

pytestmark = needs_compiler
RNG = np.random.default_rng(3)
DTYPES = (
    "bool",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "uint8",
    "int16",
    "int32",
    "uint32",
    "int64",
    "uint64",
)


@triton.jit
def sort_both(x, up, down, M: tl.constexpr, N: tl.constexpr):
    place = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    values = tl.load(x + place)
    tl.store(up + place, tl.sort(values, dim=1))
    tl.store(down + place, tl.sort(values, dim=1, descending=True))


@triton.jit
def greatest(x, out, N: tl.constexpr, K: tl.constexpr):
    tl.store(out + tl.arange(0, K), tl.topk(tl.load(x + tl.arange(0, N)), K))


@triton.jit
def sort_twice_used(x, out, N: tl.constexpr):
    """What is sorted is used before and after, and what came out is sorted again the other way round."""
    i = tl.arange(0, N)
    values = tl.load(x + i) * 2
    ordered = tl.sort(values)
    again = tl.sort(ordered, descending=True)
    tl.store(out + i, values + 1)
    tl.store(out + N + i, ordered)
    tl.store(out + 2 * N + i, again)


@triton.jit
def partner_sums(x, out, N: tl.constexpr):
    """A partner along an axis that is added, and a comparison the other way: neither is a step of a network."""
    h = tl.reshape(tl.load(x + tl.arange(0, N)), (N // 2, 2))
    other = h ^ tl.xor_sum(h, axis=1, keep_dims=True)
    right = tl.reshape(tl.arange(0, 2), (1, 2))
    turned = tl.where((h < other) != (right != 0), other, h)
    tl.store(out + tl.arange(0, N), tl.reshape(h + other, (N,)))
    tl.store(out + N + tl.arange(0, N), tl.reshape(turned, (N,)))


def numbers(dtype, *shape):
    if dtype == "bfloat16":
        ml_dtypes = pytest.importorskip("ml_dtypes")
        return numbers("float32", *shape).astype(ml_dtypes.bfloat16)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return RNG.random(shape) < 0.5
    if kind.kind == "f":
        values = RNG.standard_normal(shape).astype(kind)
        return np.where(
            RNG.random(shape) < 0.2, kind.type(-0.0), np.where(RNG.random(shape) < 0.2, kind.type(0.0), values)
        )
    limits = np.iinfo(kind)
    return RNG.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)


def networks(kernel, **arguments):
    module = module_of(kernel, arguments)
    fold_networks(module)
    operations = list(module.walk())
    return [operation for operation in operations if operation.name == NETWORK], operations


@pytest.mark.parametrize("dtype", DTYPES)
def test_sorts_of_every_type(dtype):
    x = numbers(dtype, 4, 32)
    up, down = np.zeros_like(x), np.zeros_like(x)
    run(sort_both, (1,), "optimized", x=x, up=up, down=down, M=4, N=32)
    wanted = np.sort(x.astype(np.float64) if x.dtype.kind not in "iu" else x, axis=1)
    np.testing.assert_array_equal(up.astype(wanted.dtype), wanted)
    np.testing.assert_array_equal(down.astype(wanted.dtype), wanted[:, ::-1])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "uint8"])
def test_sorts_equal_the_spelled_out_form_bit_by_bit(dtype):
    x = numbers(dtype, 2, 8)
    reference, optimized = both(sort_both, (1,), x=x, up=np.zeros_like(x), down=np.zeros_like(x), M=2, N=8)
    for name in ("up", "down"):
        assert optimized[name].tobytes() == reference[name].tobytes()


def test_nan_takes_part_as_the_comparisons_say():
    x = numbers("float32", 2, 8)
    x[RNG.random(x.shape) < 0.3] = np.nan
    reference, optimized = both(sort_both, (1,), x=x, up=np.zeros_like(x), down=np.zeros_like(x), M=2, N=8)
    for name in ("up", "down"):
        np.testing.assert_array_equal(optimized[name], reference[name])


@pytest.mark.parametrize("k", [2, 8])
def test_the_greatest_elements(k):
    x = numbers("float32", 16)
    reference, optimized = both(greatest, (1,), x=x, out=np.zeros(k, np.float32), N=16, K=k)
    assert optimized["out"].tobytes() == reference["out"].tobytes()
    np.testing.assert_array_equal(optimized["out"], np.sort(x)[::-1][:k])


def test_what_is_sorted_stays_as_it_was_for_its_other_users():
    x = numbers("float32", 16)
    for result in both(sort_twice_used, (1,), x=x, out=np.zeros((3, 16), np.float32), N=16):
        np.testing.assert_array_equal(result["out"], [x * 2 + 1, np.sort(x * 2), np.sort(x * 2)[::-1]])


def test_sorts_are_networks_and_share_the_steps_that_are_the_same():
    x = numbers("float32", 4, 64)
    found, operations = networks(sort_both, x=x, up=x, down=x, M=4, N=64)
    assert [len(steps_of(operation)[0]) for operation in found] == [15, 6, 6]
    assert not any(operation.name in {"tt.reduce", "arith.select", "arith.xori"} for operation in operations)
    last = [steps_of(operation)[0][-1] for operation in found[1:]]
    assert [(step.bit, step.flip, step.down) for step in last] == [(0, NO_FLIP, False), (0, NO_FLIP, True)]


def test_what_only_resembles_a_step_is_left_alone():
    x = RNG.integers(-9, 9, 16, dtype=np.int32)
    assert networks(partner_sums, x=x, out=x, N=16)[0] == []
    pairs = x.reshape(-1, 2)
    for result in both(partner_sums, (1,), x=x, out=np.zeros((2, 16), np.int32), N=16):
        np.testing.assert_array_equal(result["out"][0], np.repeat(pairs.sum(axis=1), 2))
        np.testing.assert_array_equal(result["out"][1], -np.sort(-pairs, axis=1).ravel())


# ---- the runtime's step


def stepped(x, bit, flip, down):
    i = np.arange(len(x))
    partner = x[i ^ (1 << bit)]
    turned = ((i >> bit) ^ (i >> flip) ^ down) & 1
    return np.where((x > partner) != turned.astype(bool), partner, x)


LEVELS_HERE = [name for name in LEVELS if name.startswith("x86") and name <= (highest_level(gather_facts()) or "")]


@pytest.mark.parametrize("level", LEVELS_HERE)
def test_steps_at_every_level(level):
    types = {"f32": "f4", "f64": "f8", "i32": "i4", "u32": "u4", "i64": "i8", "u64": "u8"}
    text = runtime.text({f"swap_{name}" for name in types}, LEVELS[level].vector_bits)
    for name in types:
        arguments = "void *x, int64_t n, int bit, int flip, int down"
        text += f"void go_{name}({arguments});\nvoid go_{name}({arguments}) {{\n"
        text += f"  silo_swap_step_{name}(x, n, bit, flip, down);\n}}\n"
    library = loaded(build(text, compile_flags(LEVELS[level]), find_compiler(None)).data)
    for name, log in itertools.product(types, range(1, 8)):
        for bit in range(log):
            for flip, down in itertools.product([*range(bit + 1, log), NO_FLIP], (0, 1)):
                x = RNG.integers(0, 20, 1 << log).astype(types[name])
                wanted = stepped(x, bit, flip, down)
                library[f"go_{name}"](ctypes.c_void_p(x.ctypes.data), ctypes.c_int64(len(x)), bit, flip, down)
                np.testing.assert_array_equal(x, wanted)


def loaded(data):
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(data)
        file.flush()
        return ctypes.CDLL(file.name)
