"""Plans on the CPU: replays with other arguments equal separate launches, and what cannot be a plan says so."""

import gc
import json
import math
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from grown import descriptors, resident
from made_bundles import write_made
from repetitions import repetitions
from silo.errors import ArgumentError, GridError, LaunchError
from silo.launch.log import LaunchLog
from silo.launch.profile import LaunchProfile
from silo.settings import override

N = 1000


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory):
    with override(home=tmp_path_factory.mktemp("store"), tune="off"):
        yield


@silo.kernel
@triton.jit
def scaled(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, factor * tl.load(x + at, mask=at < n), mask=at < n)


@silo.kernel(grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), space={"BLOCK": [64]})
@triton.jit
def added(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@silo.kernel(grid=lambda a: (a.x.shape[0],))
@triton.jit
def rows(x, out, width, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + row * width + at, mask=at < width, other=0.0))
    tl.store(out + row, total)


@silo.kernel
@triton.jit
def counted(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def two(x, between, out, n, factor):
    scaled[(silo.cdiv(n, 128),)](x, between, n, factor, BLOCK=128)
    added(between, x, out, n)


def arrays(n, count=3):
    return [np.random.default_rng(n + index).standard_normal(n, np.float32) for index in range(count)]


def test_replays_with_other_arrays_sizes_and_values_equal_separate_launches():
    plan = silo.plan(two, *arrays(N), N, 2.0)
    assert plan.names == ("x", "between", "out", "n", "factor")
    for n, factor in ((N, 3.0), (1500, 0.5), (1501, -1.0), (17, 4.0), (1, 5.0), (0, 1.0), (4096, 7.0)):
        mine, theirs = arrays(n), arrays(n)
        assert plan(*mine, n, factor) is None
        two(theirs[0], theirs[1], theirs[2], n, factor)
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
    report = plan.report()
    assert report.kernels == ("scaled", "added")
    assert report.replays + report.recordings == 8
    assert not report.fixed
    assert {form.launches for form in report.forms} == {2}


def test_the_first_run_is_the_functions_own_and_happens_once():
    x = np.zeros(64, np.float32)
    plan = silo.plan(lambda x, n: counted[(1,)](x, n, BLOCK=64), x, 64)
    assert x.tolist() == [1.0] * 64
    plan(x=x, n=64)
    assert x.tolist() == [2.0] * 64


def test_arguments_by_name_and_what_is_wrong_with_them():
    plan = silo.plan(two, *arrays(N), n=N, factor=2.0)
    x, between, out = arrays(N)
    plan(x, between, factor=3.0, out=out, n=N)
    np.testing.assert_array_equal(out, np.float32(3.0) * x + x)
    with pytest.raises(ArgumentError, match=r"two is called without 'factor'"):
        plan(x, between, out, n=N)
    with pytest.raises(ArgumentError, match=r"two has no argument 'm'"):
        plan(x, between, out, n=N, factor=1.0, m=3)
    with pytest.raises(ArgumentError, match=r"'x' is given twice"):
        plan(x, between, out, N, 1.0, x=x)
    with pytest.raises(ArgumentError, match=r"takes 5 arguments, 6 were given"):
        plan(x, between, out, N, 1.0, 2.0)
    with pytest.raises(ArgumentError, match=r"two: argument 'n' needs an integer of 64 bits"):
        plan(x, between, out, 1 << 80, 1.0)


def test_equal_values_are_told_apart():
    def both(x, out, n, m):
        scaled[(silo.cdiv(n, 64),)](x, out, m, 2.0, BLOCK=64)

    x, out = arrays(640, 2)
    plan = silo.plan(both, x, out, 64, 64)
    out[:] = 0
    plan(x, out, 640, 320)
    np.testing.assert_array_equal(out[:320], 2 * x[:320])
    assert not out[320:].any()


def test_sizes_that_the_function_computes_are_followed():
    def split(x, out, n):
        half = n // 2
        scaled[(math.ceil(half / 32),)](x, out, half, 2.0, BLOCK=32)
        scaled[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out, min(n - half, n), 3.0, BLOCK=32)

    x, out = arrays(640, 2)
    plan = silo.plan(split, x, out, 640)
    for n in (640, 320, 641 - 65, 512):
        mine, theirs = np.zeros_like(x), np.zeros_like(x)
        plan(x, mine, n)
        split(x, theirs, n)
        np.testing.assert_array_equal(mine, theirs)
    assert not plan.report().fixed


def test_another_result_of_a_comparison_is_another_form():
    def either(x, out, n):
        if n > 100:
            scaled[(silo.cdiv(n, 64),)](x, out, n, 2.0, BLOCK=64)
        else:
            scaled[(silo.cdiv(n, 64),)](x, out, n, -1.0, BLOCK=64)

    x, out = arrays(640, 2)
    plan = silo.plan(either, x, out, 640)
    for n in (480, 96, 112, 80, 640, 16):
        plan(x, out, n)
        np.testing.assert_array_equal(out[:n], x[:n] * np.float32(2.0 if n > 100 else -1.0))
    assert len(plan.report().forms) == 2


@pytest.mark.parametrize("how", ["range", "bits", "constexpr", "text"])
def test_a_value_that_cannot_be_followed_is_held(how):
    def loop(x, n):
        if how == "range":
            for _ in range(n):
                counted[(1,)](x, 64, BLOCK=64)
        elif how == "bits":
            counted[(1,)](x, 1 << (n - 1).bit_length(), BLOCK=64)
        elif how == "constexpr":
            counted[(1,)](x, 64, BLOCK=n)
        else:
            counted[(1,)](x, int(str(n)), BLOCK=64)

    plan = silo.plan(loop, np.zeros(64, np.float32), 4)
    assert "n" in plan.report().fixed
    for n in (8, 4, 2, 8):
        mine, theirs = np.zeros(64, np.float32), np.zeros(64, np.float32)
        plan(mine, n)
        loop(theirs, n)
        np.testing.assert_array_equal(mine, theirs)
    assert len(plan.report().forms) == 3
    assert plan.replays == 2


def test_parts_of_arguments_and_shapes():
    def step(x, out):
        scaled[(silo.cdiv(x.shape[0], 64),)](x, out, x.shape[0], 2.0, BLOCK=64)

    def halves(x, out):
        scaled[(1,)](x[16:], out, 16, 2.0, BLOCK=16)

    plan = silo.plan(step, *arrays(320, 2))
    for n in (640, 160, 16):
        x, out = arrays(n, 2)
        plan(x, out)
        np.testing.assert_array_equal(out, 2 * x)
    assert not plan.report().fixed
    plan = silo.plan(halves, *arrays(64, 2))
    assert "x" in plan.report().fixed
    assert "out" not in plan.report().fixed
    for n in (64, 128):
        x, out = arrays(n, 2)
        plan(x, out)
        np.testing.assert_array_equal(out[:16], 2 * x[16:32])
    assert len(plan.report().forms) == 2


def test_a_declared_grid_that_reads_shapes():
    def sums(x, out, width):
        rows(x, out, width, BLOCK=16)

    plan = silo.plan(sums, np.ones((4, 16), np.float32), np.zeros(4, np.float32), 16)
    for count in (4, 7, 4):
        out = np.zeros(count, np.float32)
        plan(np.ones((count, 16), np.float32), out, 16)
        assert out.tolist() == [16.0] * count
    assert not plan.report().fixed
    assert plan.replays == 3

    array = np.ones((4, 16), np.float32)
    plan = silo.plan(lambda out, width: rows(array, out, width, BLOCK=16), np.zeros(4, np.float32), 16)
    plan(out := np.zeros(4, np.float32), 16)
    assert out.tolist() == [16.0] * 4
    assert "width" in plan.report().fixed


def test_other_arrays_stay_and_are_kept_alive():
    held = {"between": np.zeros(N, np.float32)}

    def step(x, out):
        scaled[(8,)](x, held["between"], N, 2.0, BLOCK=128)
        scaled[(8,)](held["between"], out, N, 2.0, BLOCK=128)

    plan = silo.plan(step, *arrays(N, 2))
    held.clear()
    gc.collect()
    x, out = arrays(N, 2)
    plan(x, out)
    np.testing.assert_array_equal(out, 4 * x)


def test_memory_that_the_function_makes():
    torch = pytest.importorskip("torch")

    def step(x, out):
        between = torch.empty_like(x)
        scaled[(8,)](x, between, N, 2.0, BLOCK=128)
        scaled[(8,)](between, out, N, 2.0, BLOCK=128)

    def filled(x, out):
        between = np.zeros(N, np.float32)
        added(x, between, out, N)

    plan = silo.plan(step, torch.ones(N), torch.zeros(N))
    x, out = torch.arange(N, dtype=torch.float32), torch.zeros(N)
    plan(x, out)
    assert torch.equal(out, 4 * x)
    with pytest.raises(ArgumentError, match="makes anew each time and fills"):
        silo.plan(filled, *arrays(N, 2))


def test_what_replays_return():
    torch = pytest.importorskip("torch")

    def step(x, n):
        out = torch.empty(N)
        scaled[(silo.cdiv(n, 128),)](x, out, n, 2.0, BLOCK=128)
        return out, x

    plan = silo.plan(step, torch.ones(N), N)
    x = torch.full((N,), 3.0)
    out, same = plan(x, N)
    assert same is x
    assert torch.equal(out, 2 * x)
    again, _ = plan(torch.ones(N), N)
    assert again is out
    assert torch.equal(out, torch.full((N,), 2.0))
    short, _ = plan(x, 64)
    assert torch.equal(short[:64], 2 * x[:64])
    assert silo.plan(lambda x: counted[(1,)](x, 64, BLOCK=64) or 5, np.zeros(64, np.float32))(x.numpy()) is None


def test_work_of_torch_and_numpy_between_launches_is_refused():
    torch = pytest.importorskip("torch")

    def with_torch(x, out):
        scaled[(8,)](x, out, N, 2.0, BLOCK=128)
        out += 1.0

    def with_numpy(x, out):
        np.add(x, 1.0, out=x)
        scaled[(8,)](x, out, N, 2.0, BLOCK=128)

    with pytest.raises(ArgumentError, match=r"torch\.add_ runs between launches"):
        silo.plan(with_torch, torch.ones(N), torch.zeros(N))
    with pytest.raises(ArgumentError, match=r"numpy\.add works on x between launches"):
        silo.plan(with_numpy, *arrays(N, 2))
    ones = torch.ones(3)
    with pytest.raises(ArgumentError, match=r"torch\.mul_ runs between"), silo.planning():
        ones.mul_(2.0)
    assert ones.tolist() == [1.0] * 3  # it was refused before it ran


def test_work_of_torch_is_refused_whatever_the_program_makes_of_it():
    torch = pytest.importorskip("torch")
    runs = []

    def catches(x, out):
        scaled[(8,)](x, out, N, 2.0, BLOCK=128)
        try:
            out.add_(1.0)
        except TypeError:
            runs.append(1)

    out = torch.zeros(N)
    with pytest.raises(ArgumentError, match=r"catches: torch\.add_ runs between launches"):
        silo.plan(catches, torch.ones(N), out)
    assert runs == [1]
    assert out.tolist() == [3.0] * N  # the first run is the function's own, and the only one in which torch works


def test_operators_of_tensors_hold_the_tensor_alone():
    torch = pytest.importorskip("torch")

    def reads(x, y, out, n):
        half = y.shape[0] // 2
        scaled[(silo.cdiv(n, 128),)](x, out, n, 2.0, BLOCK=128)
        return (x if half else y) is None

    def computes(x, out):
        scaled[(8,)](x, out, N, 2.0, BLOCK=128)
        return 2 * x

    plan = silo.plan(reads, torch.ones(N), torch.ones(4), torch.ones(N), N)
    assert not plan.report().fixed
    with pytest.raises(ArgumentError, match=r"torch\.mul runs between launches"):
        silo.plan(computes, torch.ones(N), torch.ones(N))

    def sized(x, out, n, factor):
        between = torch.empty(n)
        if torch.is_tensor(x):
            scaled[(silo.cdiv(n, 128),)](x, between, n, factor, BLOCK=128)
            scaled[(silo.cdiv(n, 128),)](between, out, n, factor, BLOCK=128)

    plan = silo.plan(sized, torch.ones(N), torch.ones(N), N, 2.0)
    assert set(plan.report().fixed) == {"x", "out", "n"}
    assert "it makes other launches with them" in str(plan.report())
    plan(torch.ones(N), out := torch.zeros(N), N, 3.0)
    assert torch.equal(out, torch.full((N,), 9.0))
    assert plan.replays == 1


def test_elements_that_the_function_reads_or_writes_are_refused():
    def read(x, out):
        scaled[(8,)](x, out, N, float(x[0]), BLOCK=128)

    def write(x, out):
        out[:] = 0
        scaled[(8,)](x, out, N, 2.0, BLOCK=128)

    def operator(x, out):
        scaled[(8,)](x, out, N, 2.0, BLOCK=128)
        out += 1

    def method(x, out):
        scaled[(8,)](x, out, N, x.sum(), BLOCK=128)

    for function, what in ((read, "reads elements"), (write, "an assignment"), (operator, "unsupported operand")):
        with pytest.raises(ArgumentError, match=what):
            silo.plan(function, *arrays(N, 2))
    with pytest.raises(ArgumentError, match=r"\.sum works on x between launches"):
        silo.plan(method, *arrays(N, 2))
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match=r"torch\._local_scalar_dense runs between"):
        silo.plan(read, torch.ones(N), torch.ones(N))


def test_what_depends_on_more_than_the_arguments_is_refused():
    calls = []

    def other_value(x):
        calls.append(1)
        counted[(1,)](x, 16 * len(calls), BLOCK=64)

    def other_launch(x):
        calls.append(1)
        for _ in calls:
            counted[(1,)](x, 64, BLOCK=64)

    def other_grid(x):
        calls.append(1)
        counted[(len(calls),)](x, 64, BLOCK=64)

    x = np.zeros(64, np.float32)
    with pytest.raises(ArgumentError, match=r"argument 2 of launch 1 \(counted\) is neither an argument of the plan"):
        silo.plan(other_value, x)
    with pytest.raises(ArgumentError, match=r"made another launch in this place|launches at first and"):
        silo.plan(other_launch, x)
    with pytest.raises(ArgumentError, match=r"the grid of counted was \(\d+, 1, 1\), and"):
        silo.plan(other_grid, x)
    with pytest.raises(ArgumentError, match="nothing was launched"):
        silo.plan(lambda x: None, x)
    counted[(1,)](x, 64, BLOCK=64)  # the process goes on


def test_state_that_hides_behind_an_argument_is_refused():
    calls = []

    def sometimes(x, n):
        calls.append(1)
        counted[(1,)](x, n if len(calls) % 2 else n + 16, BLOCK=64)

    def exchanged(x, y):
        calls.append(1)
        counted[(1,)](*((x, 64) if len(calls) % 2 else (y, 64)), BLOCK=64)

    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    with pytest.raises(ArgumentError, match="it was 48, and 32 the second time"):
        silo.plan(sometimes, x, 32)
    calls.clear()
    with pytest.raises(ArgumentError, match="neither an argument of the plan nor computed from one"):
        silo.plan(exchanged, x, y)


def test_containers_and_values_of_arrays_are_refused():
    with pytest.raises(ArgumentError, match="the argument xs of a plan is a list"):
        silo.plan(lambda xs: counted[(1,)](xs[0], 64, BLOCK=64), [np.zeros(64, np.float32)])
    with pytest.raises(ArgumentError, match="the argument xs of a plan is a tuple"):
        silo.plan(lambda xs: counted[(1,)](xs[0], 64, BLOCK=64), (np.zeros(64, np.float32),))


def test_integers_beyond_64_bits_on_the_way():
    def powers(x, n):
        counted[(1,)](x, n * n * n * n // (n * n * n), BLOCK=64)

    plan = silo.plan(powers, np.zeros(64, np.float32), 32)
    plan(x := np.zeros(64, np.float32), 48)
    assert x.tolist() == [1.0] * 48 + [0.0] * 16
    plan(x := np.zeros(64, np.float32), 1 << 20)
    assert x.tolist() == [1.0] * 64
    plan(x, 1 << 20)
    assert x.tolist() == [2.0] * 64


def test_another_dtype_or_kind_is_another_form():
    plan = silo.plan(two, *arrays(N), N, 2.0)
    x, between, out = (one.astype(np.float64) for one in arrays(N))
    plan(x, between, out, N, 2.0)
    np.testing.assert_array_equal(out, 2.0 * x + x)
    x, between, out = (np.arange(N, dtype=np.int32) for _ in range(3))
    plan(x, between, out, N, 3)
    np.testing.assert_array_equal(out, 4 * x)
    assert plan.replays == 0
    plan(x, between, out, N, 5)
    assert plan.replays == 1
    np.testing.assert_array_equal(out, 6 * x)
    with pytest.raises(ArgumentError):
        plan(x, between, "text", N, 5)


def test_read_only_arrays_and_arrays_without_memory():
    torch = pytest.importorskip("torch")
    plan = silo.plan(two, *arrays(N), N, 2.0)
    x, between, out = arrays(N)
    out.flags.writeable = False
    with pytest.raises(ArgumentError, match="out"):
        plan(x, between, out, N, 2.0)
    plan = silo.plan(two, *(torch.ones(N) for _ in range(3)), N, 2.0)
    gone = torch.ones(N)
    gone.untyped_storage().resize_(0)
    with pytest.raises(ArgumentError, match="between"):
        plan(torch.ones(N), gone, torch.ones(N), N, 2.0)
    plan(torch.ones(N), torch.ones(N), torch.ones(N), N, 2.0)  # the process goes on


def test_arrays_that_were_freed_are_named():
    jax = pytest.importorskip("jax")
    x = jax.numpy.ones(N, "float32")
    plan = silo.plan(two, x, *arrays(N, 2), N, 2.0)
    gone = jax.numpy.ones(N, "float32")
    gone.delete()
    with pytest.raises((ArgumentError, RuntimeError), match=r"x|deleted"):
        plan(gone, *arrays(N, 2), N, 2.0)
    plan(x, *arrays(N, 2), N, 2.0)


def test_memory_that_was_released_is_named():
    shared = memoryview(bytearray(4 * N)).cast("f")
    taken = silo.plan(lambda x, y, out: added(x, y, out, N), *arrays(N))
    shared.release()
    with pytest.raises((ArgumentError, ValueError), match=r"y|released"):
        taken(arrays(N, 1)[0], shared, arrays(N, 1)[0])


def test_a_block_refuses_arrays_of_another_dtype_or_shape_and_launches_nothing():
    x, y, out = arrays(N)
    with silo.planning(x=x, out=out) as plan:
        added(x, y, out, N)
    untouched = np.zeros(N, np.float32)
    for wrong in (x.astype(np.float64), x[::2], np.ones((2, N), np.float32), 4, None):
        with pytest.raises(ArgumentError, match="a block cannot be run again"):
            plan(x=wrong, out=untouched)
    assert not untouched.any()
    assert plan.replays == 0
    plan(x=x, out=untouched)
    np.testing.assert_array_equal(untouched, x + y)


def test_a_grid_that_a_callable_computes_is_followed_or_refused():
    def step(x, n, blocks):
        counted[lambda meta: (silo.cdiv(n, meta["BLOCK"]) + blocks,)](x, n, BLOCK=64)

    plan = silo.plan(step, np.zeros(256, np.float32), 64, 0)
    for n, blocks in ((64, 0), (256, 0), (128, 1), (128, -2)):
        x = np.zeros(256, np.float32)
        plan(x, n, blocks)
        alone = np.zeros(256, np.float32)
        step(alone, n, blocks)
        np.testing.assert_array_equal(x, alone)
    assert plan.replays >= 3
    calls = []

    def counting(meta):
        calls.append(meta)
        return (len(calls),)

    with pytest.raises(ArgumentError, match=r"the grid of counted was \(\d+, 1, 1\), and"):
        silo.plan(lambda x: counted[counting](x, 64, BLOCK=64), np.zeros(64, np.float32))


def test_a_grid_that_no_launch_can_have():
    plan = silo.plan(lambda x, n, blocks: counted[(blocks,)](x, n, BLOCK=64), np.zeros(64, np.float32), 64, 2)
    with pytest.raises((ArgumentError, GridError), match="counted: grid dimension x is -2, which is negative"):
        plan(np.zeros(64, np.float32), 64, -2)
    with pytest.raises((ArgumentError, GridError), match="counted"):
        plan(np.zeros(64, np.float32), 64, 1 << 40)
    x = np.zeros(64, np.float32)
    plan(x, 64, 0)
    assert not x.any()


def test_a_block_is_replayed_with_other_arrays():
    x, y, out = arrays(N)
    with silo.planning(x=x, out=out) as plan:
        scaled[(8,)](x, out, N, 2.0, BLOCK=128)
        added(out, y, out, N)
    np.testing.assert_array_equal(out, np.float32(2.0) * x + y)
    other, result = arrays(N, 2)
    other += 1
    plan(x=other, out=result)
    np.testing.assert_array_equal(result, np.float32(2.0) * other + y)
    with pytest.raises(ArgumentError, match="a block cannot be run again"):
        plan(x=np.zeros(2 * N, np.float32), out=result)
    with silo.planning() as plan:
        counted[(1,)](x, 64, BLOCK=64)
    before = x.copy()
    plan()
    np.testing.assert_array_equal(x[:64], before[:64] + 1)


def test_copies_and_fills_of_buffers():
    def step(x, kept, out, n):
        kept.copy_from(x)
        x.fill(0)
        added(x, kept, out, n)
        out.fill(0) if n > 1000 else None

    def buffers(n):
        made = [silo.Buffer(n) for _ in range(3)]
        made[0].numpy()[:] = np.arange(n)
        return made

    plan = silo.plan(step, *buffers(160), 160)
    assert plan.report().kernels == ("Buffer.copy", "Buffer.fill", "added")
    for n in (160, 320, 4000):
        x, kept, out = buffers(n)
        plan(x, kept, out, n)
        assert not x.numpy().any()
        np.testing.assert_array_equal(kept.numpy(), np.arange(n))
        np.testing.assert_array_equal(out.numpy(), np.arange(n) if n <= 1000 else np.zeros(n))
    assert plan.replays == 1 + 1
    x, kept, out = buffers(160)
    with pytest.raises(ArgumentError, match="as many"):
        plan(x, silo.Buffer(80), out, 160)
    with pytest.raises(ArgumentError, match="copies of a whole Buffer to another"), silo.planning():
        x.copy_from(bytes(640))
    with pytest.raises(ArgumentError, match="does not record copy_to"), silo.planning():
        x.copy_to(bytearray(640))
    with silo.planning(x=x) as block:
        out.copy_from(x)
    x = buffers(160)[0]
    block(x=x)
    np.testing.assert_array_equal(out.numpy(), np.arange(160))


@triton.jit
def plain(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, factor * tl.load(x + at, mask=at < n), mask=at < n)


@triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64)], key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 + tl.load(x + at, mask=at < n), mask=at < n)


def test_unchanged_triton_programs():
    torch = pytest.importorskip("torch")

    def program(x, between, out, n, factor):
        plain[(triton.cdiv(n, 64),)](x, between, n, factor, BLOCK=64)
        plain[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](between, out, n, factor, BLOCK=128)

    def with_tuner(x, out, n):
        tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)

    with silo.accelerate():
        plan = silo.plan(program, *(torch.ones(N) for _ in range(3)), N, 2.0)
        for n in (1500, 160, 0, 4000):
            x, between, out = torch.arange(n, dtype=torch.float32), torch.zeros(n), torch.zeros(n)
            plan(x, between, out, n, 3.0)
            assert torch.equal(out, 9 * x)
        assert plan.replays >= 2
        plan = silo.plan(with_tuner, torch.ones(N), torch.ones(N), N)
        for n in (N, 500, N):
            x, out = torch.arange(n, dtype=torch.float32), torch.zeros(n)
            plan(x, out, n)
            assert torch.equal(out, x + 2)
        assert plan.report().kernels == ("tuned",)
        assert plan.replays == 2


def test_plans_within_plans():
    inner = silo.plan(two, *arrays(N), N, 2.0)

    def outer(x, between, out, n):
        inner(x, between, out, n, 3.0)
        scaled[(silo.cdiv(n, 64),)](out, out, n, 2.0, BLOCK=64)

    plan = silo.plan(outer, *arrays(N), N)
    assert plan.report().kernels == ("scaled", "added", "scaled")
    x, between, out = arrays(1500)
    plan(x, between, out, 1500)
    np.testing.assert_array_equal(out, np.float32(2.0) * (np.float32(3.0) * x + x))
    with pytest.raises(ArgumentError, match="a plan is being recorded in this thread"), silo.planning():
        silo.plan(two, *arrays(N), N, 2.0)


def test_an_error_within_a_recording_ends_it():
    x = np.zeros(64, np.float32)
    with pytest.raises(ZeroDivisionError), silo.planning():
        counted[(1,)](x, 64 // int(x[0]), BLOCK=64)
    counted[(1,)](x, 64, BLOCK=64)
    silo.plan(lambda x: counted[(1,)](x, 64, BLOCK=64), x)
    assert x.tolist() == [2.0] * 64


def test_arguments_that_share_memory_are_launched_in_order():
    def chain(x, y):
        for _ in range(8):
            counted[(1,)](x, 64, BLOCK=64)
            counted[(1,)](y, 64, BLOCK=64)

    plan = silo.plan(chain, np.zeros(64, np.float32), np.zeros(64, np.float32))
    for _ in range(30):
        x = np.zeros(64, np.float32)
        plan(x, x)
        assert x.tolist() == [16.0] * 64
        both = np.zeros(96, np.float32)
        plan(both[:64], both[16:80])
        assert both[16:64].tolist() == [16.0] * 48
        assert both[:16].tolist() + both[64:80].tolist() == [8.0] * 32


def test_chains_that_run_at_one_time_give_what_separate_launches_give():
    def chains(x, y, z, n):
        for index in range(12):
            for one in (x, y, z):
                scaled[(1,)](one, one, n, 1.0 + index / 8, BLOCK=4096)
        added(x, y, z, n)

    plan = silo.plan(chains, *arrays(4096), 4096)
    for turn in range(60):
        mine, theirs = arrays(4096), arrays(4096)
        plan(*mine, 4096)
        if turn % 10 == 0:
            chains(theirs[0], theirs[1], theirs[2], 4096)
            for one, other in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(one, other)
    assert "each launch needs what the one before it wrote" not in plan.explain()


def test_hooks_see_a_replay_as_one_launch():
    plan = silo.plan(two, *arrays(N), N, 2.0)
    x, between, out = arrays(N)
    seen, ended = [], []

    def hook(event):
        seen.append(event)
        return lambda: ended.append(event.kernel)

    with silo.launch_hook(hook):
        plan(x, between, out, N, 2.0)
    (event,) = seen
    assert (event.kernel, event.parts, event.grid, event.device) == ("two", ("scaled", "added"), (2, 1, 1), "cpu:0")
    assert event.arguments["out"] is out
    assert ended == ["two"]

    def refuse(event):
        raise LaunchError("not now")

    before = out.copy()
    x += 1
    with silo.launch_hook(refuse), pytest.raises(LaunchError, match="not now"):
        plan(x, between, out, N, 2.0)
    np.testing.assert_array_equal(out, before)


def test_a_hook_that_has_to_see_each_launch_sees_each():
    plan = silo.plan(two, *arrays(N), N, 2.0)
    x, between, out = arrays(N)
    seen = []
    with silo.launch_hook(lambda event: seen.append(event.kernel), each=True):
        plan(x, between, out, N, 3.0)
        plan(x, between, out, N, 2.0)
    assert seen == ["scaled", "added"] * 2
    assert plan.replays == 0
    np.testing.assert_array_equal(out, np.float32(2.0) * x + x)
    with silo.planning(x=x) as block:
        scaled[(8,)](x, out, N, 2.0, BLOCK=128)
    out[:] = 0
    with silo.launch_hook(seen.append, each=True), pytest.raises(ArgumentError, match="a block cannot be run again"):
        block(x=x)
    assert not out.any()
    plan(x, between, out, N, 2.0)
    block(x=x)
    assert plan.replays == block.replays == 1


@pytest.fixture(name="failing", scope="module")
def _failing(tmp_path_factory):
    """A plan whose second launch of three fails where ``blocks`` is not 0: no such launch is in the recording."""
    kernels = silo.load(write_made(tmp_path_factory.mktemp("made") / "made.silo"), trust=True)

    def step(x, out, ints, blocks):
        kernels.add(x, x, out, 64)
        kernels.fails(ints, blocks)
        kernels.add(out, x, x, 64)

    return silo.plan(step, np.ones(64, np.float32), np.ones(64, np.float32), np.ones(16, np.int32), 0)


def test_a_launch_that_fails_in_the_middle_ends_the_replay(failing):
    for turn in range(3):
        x, out, ints = np.ones(64, np.float32), np.zeros(64, np.float32), np.zeros(16, np.int32)
        with pytest.raises(LaunchError, match=r"fails.*2|2.*fails") as caught:
            failing(x, out, ints, 16 * (turn + 1))
        assert "assertion failed: n < 3" in str(caught.value)
        assert out.tolist() == [2.0] * 64
        assert x.tolist() == [1.0] * 64  # the launch after it, which needs its memory or not, is not made
        failing(x, out, ints, 0)
        assert x.tolist() == [3.0] * 64
    assert len(failing.report().forms) == 1


def test_a_plan_that_fails_in_one_thread_serves_the_others(failing):
    wrong = []

    def run(number):
        for _ in range(50):
            x, out, ints = np.ones(64, np.float32), np.zeros(64, np.float32), np.zeros(16, np.int32)
            try:
                failing(x, out, ints, 16 if number == 0 else 0)
            except LaunchError:
                wrong.append(number)
            else:
                if number == 0 or x.tolist() != [3.0] * 64:
                    wrong.append(-1)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(run, range(3)))
    assert wrong == [0] * 50


def test_a_plan_that_its_own_replay_calls():
    """A hook of a replay calls the plan again: each call is a replay of its own."""
    plan = silo.plan(two, *arrays(N), N, 2.0)
    inner, outer = arrays(N), arrays(N)
    entered = []

    def hook(event):
        if not entered:
            entered.append(event.kernel)
            plan(*inner, N, 3.0)

    with silo.launch_hook(hook):
        plan(*outer, N, 2.0)
    np.testing.assert_array_equal(inner[2], np.float32(3.0) * inner[0] + inner[0])
    np.testing.assert_array_equal(outer[2], np.float32(2.0) * outer[0] + outer[0])


def test_recordings_within_recordings():
    inner = silo.plan(two, *arrays(N), N, 2.0)

    def makes_a_plan(x, between, out):
        silo.plan(two, x, between, out, N, 2.0)

    values = arrays(N)
    with pytest.raises(ArgumentError, match="a plan is being recorded in this thread"):
        silo.plan(makes_a_plan, *values)
    inner(*values, N, 2.0)
    np.testing.assert_array_equal(values[2], np.float32(2.0) * values[0] + values[0])


def test_hooks_see_the_kernels_of_the_form_that_runs_and_nothing_of_forms_that_do_not():
    def either(x, out, n):
        if n > 100:
            scaled[(silo.cdiv(n, 64),)](x, out, n, 2.0, BLOCK=64)
            counted[(1,)](out, 64, BLOCK=64)
        else:
            counted[(1,)](out, n, BLOCK=64)

    x, out = arrays(640, 2)
    plan = silo.plan(either, x, out, 640)
    plan(x, out, 64)
    seen = []
    with silo.launch_hook(lambda event: seen.append((event.kernel, event.parts, event.grid))):
        plan(x, out, 320)
        plan(x, out, 32)
        plan(x, out, 640)
        assert seen == [
            ("either", ("scaled", "counted"), (2, 1, 1)),
            ("either", ("counted",), (1, 1, 1)),
            ("either", ("scaled", "counted"), (2, 1, 1)),
        ]
        seen.clear()
        plan(x, out, 17)  # a form of its own: its launches are made one by one
        assert seen == [("counted", (), (1, 1, 1))]
    assert [form.launches for form in plan.report().forms] == [2, 1, 1]


def test_the_profile_and_the_log_have_a_replay_as_one_launch(tmp_path):
    plan = silo.plan(two, *arrays(N), N, 2.0)
    x, between, out = arrays(N)
    profile = LaunchProfile()
    with silo.launch_hook(profile), silo.launch_hook(LaunchLog(tmp_path / "log")):
        for _ in range(3):
            plan(x, between, out, N, 2.0)
    (total,) = profile.totals()
    assert (total.kernel, total.device, total.launches, total.untimed) == ("two", "cpu:0", 3, 0)
    assert total.time_ns > 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["kernel"] for line in lines] == ["two"] * 3
    assert lines[0]["parts"] == ["scaled", "added"]
    assert lines[0]["arguments"]["n"] == N


def test_a_report_has_launches_updates_and_microseconds():
    plan = silo.plan(two, *arrays(N), N, 2.0)
    (form,) = plan.report().forms
    assert (form.launches, form.updates, form.grids, form.replays, form.us) == (2, 8, 2, 0, None)
    for _ in range(10):
        plan(*arrays(N), N, 2.0)
    (form,) = plan.report().forms
    assert form.replays == 10
    assert form.us is not None
    assert 0 < form.us < 1e6
    assert form.way in str(plan.report())
    assert plan.explain() == str(plan.report())


def test_threads_use_one_plan_at_the_same_time():
    plan = silo.plan(two, *arrays(N), N, 2.0)
    wrong = []
    start = threading.Barrier(4)

    def run(number):
        start.wait()
        for turn in range(200):
            n = 64 + 16 * ((turn * 7 + number) % 60)
            x, between, out = arrays(n)
            plan(x, between, out, n, float(number))
            if not np.array_equal(out, np.float32(number) * x + x):
                wrong.append((number, turn))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run, range(4)))
    assert not wrong


def test_random_replacements():
    """Replays with other sizes, values, alignments and grids, empty ones too, beside plain arithmetic."""
    plan = silo.plan(two, *arrays(N), N, 2.0)
    chance = random.Random(37)
    room = [np.random.default_rng(index).standard_normal(4200, np.float32) for index in range(3)]
    for _ in range(repetitions("SILO_TEST_REPLACEMENTS", 1000, 10_000)):
        n = chance.choice((0, 1, 16, chance.randrange(0, 300), 16 * chance.randrange(0, 20)))
        x, between, out = (one[at : at + n] for one in room if (at := chance.choice((0, 4, 1, 8))) or True)
        factor = float(np.float32(chance.uniform(-4, 4)))
        out[:] = 9.0
        plan(x, between, out, n, factor)
        expected = np.float32(factor) * x
        assert np.array_equal(out, expected + x), (n, factor)
    report = plan.report()
    assert report.replays > 20 * report.recordings, str(report)


def test_a_plan_keeps_only_so_many_forms(caplog):
    plan = silo.plan(lambda x, n: counted[(1,)](x, 64 + len(range(n)), BLOCK=64), np.zeros(64, np.float32), 0)
    for n in range(70):
        x = np.zeros(64, np.float32)
        plan(x, n)
        assert x.tolist() == [1.0] * 64
    assert len(plan.report().forms) == 64
    assert "keeps no more" in caplog.text


@pytest.mark.parametrize("replays", [10_000, pytest.param(1_000_000, marks=pytest.mark.all)])
def test_replays_do_not_grow(replays):
    plan = silo.plan(two, *arrays(N), N, 2.0)
    x, between, out = arrays(N)

    def run(count):
        for turn in range(count):
            plan(x, between, out, 16 * (turn % 60), 2.0)

    run(2000)
    before, opened = resident(), descriptors()
    run(replays)
    assert resident() - before < 2 << 20
    assert descriptors() == opened
    assert plan.replays > replays


def test_a_forked_child_replays_a_plan():
    def child():
        x, between, out = arrays(N)
        for n in (N, 320, 0, 17):
            out[:] = 0
            plan(x, between, out, n, 3.0)
            assert np.array_equal(out[:n], (np.float32(3.0) * x + x)[:n]), n

    plan = silo.plan(two, *arrays(N), N, 2.0)
    plan(*arrays(N), N, 2.0)
    child()
    process = os.fork()
    if process == 0:
        failed = 1
        try:
            child()
            failed = 0
        finally:
            os._exit(failed)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    child()


@silo.kernel(grid=(1,))
@triton.jit
def moved(x, out):
    out.store([8, 16], x.load([4, 24]) * 2)


def test_descriptors_of_arguments():
    def step(x, out, rows, columns):
        source = silo.TensorDescriptor(x, (rows, columns), (columns, 1), [8, 16])
        moved(source, silo.TensorDescriptor(out, (rows, columns), (columns, 1), [8, 16]))

    def matrix(rows, columns):
        return np.random.default_rng(rows).standard_normal((rows, columns), np.float32)

    plan = silo.plan(step, matrix(20, 32), np.zeros((20, 32), np.float32), 20, 32)
    for rows, columns in ((20, 32), (17, 48), (12, 64), (20, 32)):
        x = matrix(rows, columns)
        mine, theirs = np.zeros((rows, columns), np.float32), np.zeros((rows, columns), np.float32)
        plan(x, mine, rows, columns)
        step(x, theirs, rows, columns)
        np.testing.assert_array_equal(mine, theirs)
        assert mine.any()
    assert plan.replays == 4
    assert not plan.report().fixed
    with pytest.raises(ArgumentError, match=r"moved: argument '(x|out)' has strides"):
        plan(x, mine, 20, 31)
    x = matrix(20, 32)
    plan(x, mine, 20, 32)


def test_descriptors_by_tritons_own_class():
    torch = pytest.importorskip("torch")
    from triton.tools.tensor_descriptor import TensorDescriptor

    def step(x, out):
        moved(TensorDescriptor.from_tensor(x, [8, 16]), TensorDescriptor.from_tensor(out, [8, 16]))

    plan = silo.plan(step, torch.ones(20, 32), torch.zeros(20, 32))
    for rows, columns in ((20, 32), (24, 64)):
        x, mine, theirs = torch.randn(rows, columns), torch.zeros(rows, columns), torch.zeros(rows, columns)
        plan(x, mine)
        step(x, theirs)
        assert torch.equal(mine, theirs)
    assert plan.replays == 2
    wide = torch.zeros(20 * 40 + 1)
    with pytest.raises(AssertionError, match="16-byte aligned"):
        plan(wide[1 : 1 + 640].view(20, 32), mine)
