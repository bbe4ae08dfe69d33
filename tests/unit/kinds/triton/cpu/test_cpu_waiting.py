# ruff: noqa: E402  # Triton may be absent, which comes first
"""Kernels whose programs wait for each other: volatile loads, flags, locks; each program on a thread of its own."""
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

import cpu_samples
import silo
from cpu_samples import module_of, run
from silo.errors import CheckError
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.emit.kernel_text import emit_c

pytestmark = [cpu_samples.needs_compiler, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
modes = pytest.mark.parametrize("mode", cpu_samples.MODES)
SECONDS = 60  # more than a busy machine needs; a wait that never ends is what the tests look for


def at_once(kernel, grid, mode, order, **arguments):
    """Run the programs ``order``, each on a thread that starts a little after the one before it."""
    loaded = cpu_samples.compiled(kernel, mode, **arguments)
    cells = [loaded._cell(slot.name, slot.type, arguments[slot.name]) for slot in loaded.launch.layout]
    params = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(cell) for cell in cells])
    extents = (ctypes.c_uint32 * 3)(grid, 1, 1)
    codes = {}

    def work(program):
        scratch = ctypes.create_string_buffer(loaded.launch.scratch_bytes + 64)
        place = -(-ctypes.addressof(scratch) // 64) * 64
        codes[program] = loaded.function(params, extents, program, program + 1, place, None)

    threads = [threading.Thread(target=work, args=(program,), daemon=True) for program in order]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join(SECONDS)
    assert codes == dict.fromkeys(order, 0), "a program still waits for what was stored long ago"


@triton.jit
def look_back(x, sums, ready, out, BLOCK: tl.constexpr):
    """A running sum over all programs: each adds what those before it have published."""
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + pid * BLOCK + i)
    tl.store(sums + pid, tl.sum(v))
    tl.debug_barrier()
    tl.store(ready + pid, 1)
    before = 0
    other = pid - 1
    while other >= 0:
        while tl.load(ready + other, volatile=True) == 0:
            pass
        before += tl.load(sums + other, volatile=True)
        other -= 1
    tl.store(out + pid * BLOCK + i, tl.cumsum(v, 0) + before)


@modes
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_look_back_reads_its_flags_again_and_again(mode, order):
    x = np.arange(96, dtype=np.int32)
    sums, ready, out = np.zeros(3, np.int32), np.zeros(3, np.int32), np.zeros(96, np.int32)
    at_once(look_back, 3, mode, order, x=x, sums=sums, ready=ready, out=out, BLOCK=32)
    np.testing.assert_array_equal(out, np.cumsum(x))


@pytest.mark.parametrize("check", [False, True])
def test_a_look_back_runs_on_every_thread_and_in_a_check(check):
    x = np.arange(1024, dtype=np.int32)
    sums, ready, out = np.zeros(64, np.int32), np.zeros(64, np.int32), np.zeros(1024, np.int32)
    kernel = silo.check(look_back_by_atomics) if check else silo.kernel(look_back_by_atomics)
    kernel[(64,)](x, sums, ready, out, BLOCK=16)
    np.testing.assert_array_equal(out, np.cumsum(x))


@triton.jit
def look_back_by_atomics(x, sums, ready, out, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + pid * BLOCK + i)
    before = 0
    if pid > 0:
        while tl.load(ready + pid - 1, volatile=True) == 0:
            pass
        before = tl.load(sums + pid - 1)
    tl.store(sums + pid, before + tl.sum(v))
    tl.atomic_xchg(ready + pid, 1, sem="release")
    tl.store(out + pid * BLOCK + i, tl.cumsum(v, 0) + before)


@triton.jit
def hands_over_a_tile(data, flag, out, BLOCK: tl.constexpr):
    """Program 0 waits for the tile, which is stored, and so is the flag, one element of a tile too."""
    i = tl.arange(0, BLOCK)
    one = tl.arange(0, 1)
    if tl.program_id(0) == 0:
        seen = tl.load(flag + one, volatile=True)
        while tl.sum(seen) == 0:
            seen = tl.load(flag + one, volatile=True)
        tl.store(out + i, tl.load(data + i, volatile=True) + tl.load(data + BLOCK - 1 - i))
    else:
        tl.store(data + i, i + 1)
        tl.store(flag + one, one + 1)


@modes
def test_tiles_are_waited_for(mode):
    data, flag, out = np.zeros(256, np.int32), np.zeros(1, np.int64), np.zeros(256, np.int32)
    at_once(hands_over_a_tile, 2, mode, (0, 1), data=data, flag=flag, out=out, BLOCK=256)
    assert (out == 257).all()


@triton.jit
def meets(counter, seen, HOW: tl.constexpr):
    """All programs wait until each has come."""
    tl.atomic_add(counter, 1)
    if HOW == "add":
        while tl.atomic_add(counter, 0) < tl.num_programs(0):
            pass
    elif HOW == "cas":
        while tl.atomic_cas(counter, tl.num_programs(0), tl.num_programs(0)) != tl.num_programs(0):
            pass
    elif HOW == "max":
        while tl.atomic_max(counter, 0, sem="acquire") < tl.num_programs(0):
            pass
    else:
        while tl.load(counter, volatile=True) < tl.num_programs(0):
            pass
    tl.store(seen + tl.program_id(0), tl.load(counter))


@modes
@pytest.mark.parametrize("how", ["add", "cas", "max", "load"])
def test_all_programs_meet(mode, how):
    counter, seen = np.zeros(1, np.int32), np.zeros(3, np.int32)
    at_once(meets, 3, mode, (0, 1, 2), counter=counter, seen=seen, HOW=how)
    assert seen.tolist() == [3, 3, 3]


@triton.jit
def adds_under_a_lock(lock, total, TIMES: tl.constexpr):
    i = tl.arange(0, 64)
    for _ in range(TIMES):
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
        tl.store(total + i, tl.load(total + i) + 1)
        tl.store(lock, 0)


@modes
def test_a_lock_that_a_plain_store_opens(mode):
    lock, total = np.zeros(1, np.int32), np.zeros(64, np.int32)
    at_once(adds_under_a_lock, 2, mode, (0, 1), lock=lock, total=total, TIMES=200)
    assert (total == 400).all()


@triton.jit
def reads_twice(place, go, out):
    first = tl.load(place, volatile=True)
    tl.store(go, 1)
    second = tl.load(place, volatile=True)
    while second == first:
        second = tl.load(place, volatile=True)
    tl.store(out, second)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"])
def test_every_type_is_read_again(dtype):
    place, go, out = np.zeros(1, dtype), np.zeros(1, np.int32), np.zeros(1, dtype)

    def writes():
        while go[0] == 0:
            time.sleep(0.001)
        place[0] = 1

    writer = threading.Thread(target=writes, daemon=True)
    writer.start()
    at_once(reads_twice, 1, "optimized", (0,), place=place, go=go, out=out)
    assert out[0] == 1


@triton.jit
def follows_addresses(table, out, n):
    """Volatile, masked, with a value for the rest; what is read is an address."""
    i = tl.arange(0, 8)
    addresses = tl.load(table + i, mask=i < n, other=0, volatile=True)
    places = addresses.to(tl.pointer_type(tl.int32))
    tl.store(out + i, tl.load(places, mask=i < n, other=-1, volatile=True))
    one = tl.load(table + n, mask=n < 8, other=5, volatile=True)
    tl.store(out + 8, one)


@modes
def test_masked_and_indirect(mode):
    values = np.arange(10, 18, dtype=np.int32)
    table = np.array([values.ctypes.data + 4 * place for place in range(8)], np.int64)
    out = np.zeros(9, np.int64)
    run(follows_addresses, (1,), mode, table=table, out=out, n=5)
    assert out.tolist() == [10, 11, 12, 13, 14, -1, -1, -1, table[5]]
    run(follows_addresses, (1,), mode, table=table, out=out, n=8)
    assert out.tolist() == [*range(10, 18), 5]


@triton.jit
def reads_in_a_loop(x, out, n):
    total = 0
    for _ in range(n):
        total += tl.load(x, volatile=True)
        tl.load(x + 1, volatile=True)
    tl.store(out, total)


@modes
def test_volatile_loads_are_neither_merged_nor_dropped(mode):
    arguments = {"x": np.ones(2, np.int32), "out": np.zeros(1, np.int32), "n": 5}
    text = emit_c(module_of(reads_in_a_loop, arguments), CpuOptions(mode=mode)).source
    body = text.partition("program++")[2]
    loop = body.partition("for (")[2]
    assert loop.count("silo_volatile_load_i32(") == body.count("silo_volatile_load_i32(") == 2
    module = module_of(reads_in_a_loop, arguments)
    assert emit_c(module, CpuOptions(mode=mode)) == emit_c(module, CpuOptions(mode=mode)), "lowering it twice is fine"
    run(reads_in_a_loop, (1,), mode, **arguments)
    assert arguments["out"][0] == 5


@triton.jit
def plain(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.debug_barrier()
    tl.store(out + i, tl.load(x + i))


def test_kernels_that_wait_for_nothing_have_no_fences():
    arguments = {"x": np.ones(16, np.int32), "out": np.zeros(16, np.int32), "BLOCK": 16}
    assert "fence" not in emit_c(module_of(plain, arguments)).source


@triton.jit
def passes_on(data, flags, TURNS: tl.constexpr):
    """Programs in a ring: each waits for the one before it, adds, and hands over to the one after it."""
    pid = tl.program_id(0)
    last = tl.num_programs(0) - 1
    for turn in range(TURNS):
        come = tl.atomic_poll(flags + pid, turn + 1)
        tl.store(data, tl.load(data) + come.to(tl.int32))
        after = tl.where(pid == last, 0, pid + 1)
        tl.atomic_store(flags + after, turn + 1 + (pid == last).to(tl.int32))


@triton.jit
def polls_tiles(flags, out, wait, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if tl.program_id(0) == 0:
        tl.store(out + i, tl.atomic_poll(flags + i, i + 1).to(tl.int32))
        tl.store(out + BLOCK + i, tl.atomic_poll(flags + i, i + (i > 3).to(tl.int32), timeout_ns=wait).to(tl.int32))
        tl.store(out + 2 * BLOCK + i, tl.atomic_load(flags + i, mask=i < 5), mask=i < 5)
    else:
        tl.atomic_store(flags + i, i + 1, mask=i < BLOCK)


needs_polls = pytest.mark.skipif(not hasattr(tl, "atomic_poll"), reason="this Triton has no atomic_poll")


@needs_polls
@modes
def test_polls_pass_a_number_round(mode):
    data, flags = np.zeros(1, np.int64), np.array([1, 0, 0], np.int32)
    at_once(passes_on, 3, mode, (2, 0, 1), data=data, flags=flags, TURNS=5)
    assert data[0] == 15
    assert flags.tolist() == [6, 5, 5]


@needs_polls
@modes
def test_polls_of_tiles_and_with_a_limit(mode):
    flags, out = np.zeros(16, np.int64), np.zeros((3, 16), np.int32)
    at_once(polls_tiles, 2, mode, (0, 1), flags=flags, out=out, wait=1000, BLOCK=16)
    assert (out[0] == 1).all()
    assert out[1].tolist() == [0] * 4 + [1] * 12
    assert out[2][:5].tolist() == [1, 2, 3, 4, 5]


@needs_polls
def test_a_poll_that_nothing_ends_is_found_by_a_check():
    flags, out = np.zeros(16, np.int64), np.zeros((3, 16), np.int32)
    with pytest.raises(CheckError, match="polls_tiles"):
        silo.check(polls_tiles)[(2,)](flags, out, 1000, BLOCK=16)
    flags[:] = np.arange(1, 17)
    silo.check(polls_tiles)[(1,)](flags, out, 1000, BLOCK=16)
    assert (out[0] == 1).all()


@triton.jit
def after_another(x, out):
    tl.extra.cuda.gdc_wait()
    tl.store(out, tl.load(x) + 1)
    tl.extra.cuda.gdc_launch_dependents()


def test_launches_follow_one_another():
    out = np.zeros(1, np.int32)
    run(after_another, (1,), "optimized", x=np.ones(1, np.int32), out=out)
    assert out[0] == 2
