# ruff: noqa: E402  # Triton may be absent, which comes first; its constexprs are written in capitals
"""``tl.device_print``, ``tl.device_assert`` and their compile-time sisters on the CPU."""
# pyright: reportCallIssue=false, reportOperatorIssue=false

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

import cpu_samples
import silo
from silo.core.config import Config
from silo.core.variant import Variant
from silo.drivers.cpu.levels import host_target
from silo.errors import CompileError, LaunchError
from silo.kinds.triton.cpu.cpu_compiler import CpuCompiler
from silo.kinds.triton.front.triton_source import TritonSource

pytestmark = [cpu_samples.needs_compiler, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
modes = pytest.mark.parametrize("mode", cpu_samples.MODES)
FILE = __file__.rpartition("/")[2]


def line_of(kernel, text):
    """The line of this file on which the source of ``kernel`` has ``text``."""
    lines, start = inspect.getsourcelines(kernel.fn)
    return next(start + offset for offset, line in enumerate(lines) if text in line)


@triton.jit
def prints(x, n, scale, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.device_print("begins", pid)
    tl.device_print("v", v * scale, i)
    tl.device_print("bits", i, hex=True)
    tl.device_print("is small: ", v < 2.0)
    tl.device_print("half", scale.to(tl.float16))
    tl.device_print("unsigned", (i - 1).to(tl.uint32), (i - 1).to(tl.int8))
    tl.device_print("done")


@modes
def test_every_element_is_a_line(mode, capfd):
    cpu_samples.run(prints, (2, 1), mode, x=np.arange(2, dtype=np.float32), n=2, scale=1.5, BLOCK=2)
    expected = []
    for pid in (0, 1):
        head = f"pid ({pid}, 0, 0)"
        expected += [
            f"{head} idx () begins: {pid}",
            f"{head} idx (0) v: (operand 0) 0.000000",
            f"{head} idx (1) v: (operand 0) 1.500000",
            f"{head} idx (0) v: (operand 1) 0",
            f"{head} idx (1) v: (operand 1) 1",
            f"{head} idx (0) bits: 0x00000000",
            f"{head} idx (1) bits: 0x00000001",
            f"{head} idx (0) is small: 1",
            f"{head} idx (1) is small: 1",
            f"{head} idx () half: 1.500000",
            f"{head} idx (0) unsigned: (operand 0) 4294967295",
            f"{head} idx (1) unsigned: (operand 0) 0",
            f"{head} idx (0) unsigned: (operand 1) -1",
            f"{head} idx (1) unsigned: (operand 1) 0",
            f"{head} done",
        ]
    assert capfd.readouterr().out.splitlines() == expected


@triton.jit
def prints_in_order(x, n, BLOCK: tl.constexpr):
    rows = tl.arange(0, 2)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    tile = x + rows * BLOCK + columns
    for turn in range(n):
        before = tl.load(tile)
        tl.store(tile, before + 1)
        tl.device_print("turn", turn)
        tl.device_print("tile", tl.load(tile))


@modes
def test_prints_keep_their_place_among_stores(mode, capfd):
    cpu_samples.run(prints_in_order, (1,), mode, x=np.zeros((2, 16), np.int32), n=3, BLOCK=16)
    lines = capfd.readouterr().out.splitlines()
    expected = []
    for turn in range(3):
        expected.append(f"pid (0, 0, 0) idx () turn: {turn}")
        expected += [
            f"pid (0, 0, 0) idx ({row}, {column:2}) tile: {turn + 1}" for row in range(2) for column in range(16)
        ]
    assert lines == expected


@triton.jit
def asserts(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=1.0)
    tl.store(out + i, v, mask=i < n)
    tl.device_assert(v > 0, 'x is "positive"')
    tl.store(out + i, -v, mask=i < n)


debugged = triton.jit(asserts.fn, debug=True)


@modes
def test_an_assertion_is_there_only_if_asked_for(mode):
    out = np.zeros(8, np.float32)
    cpu_samples.run(asserts, (2,), mode, x=np.full(8, -1, np.float32), out=out, n=8, BLOCK=4)
    assert (out == 1).all()


@modes
def test_a_failed_assertion_says_where(mode):
    x, out = np.ones(16, np.float32), np.zeros(16, np.float32)
    x[10] = 0
    with pytest.raises(LaunchError) as raised:
        cpu_samples.run(debugged, (4,), mode, x=x, out=out, n=16, BLOCK=4)
    place = f"{FILE}:{line_of(asserts, 'device_assert')}"
    assert f'device-side assert at {place}: x is "positive"; program (2, 0, 0), index (2) (code 1)' in str(raised.value)
    # What comes before in the program has happened, what comes after has not.
    np.testing.assert_array_equal(out, [*[-1] * 8, 1, 1, 0, 1, 0, 0, 0, 0])


@triton.jit(debug=True)
def asserts_scalar(x, n):
    for turn in range(n):
        v = tl.load(x + turn)
        tl.device_assert(v != 7)
        tl.store(x + turn, v + 1)


@modes
def test_a_scalar_assertion_has_no_index(mode):
    x = np.array([1, 7, 1], np.int32)
    with pytest.raises(LaunchError) as raised:
        cpu_samples.run(asserts_scalar, (1,), mode, x=x, n=3)
    place = f"{FILE}:{line_of(asserts_scalar, 'device_assert')}"
    assert re.search(rf"device-side assert at {re.escape(place)}; program \(0, 0, 0\) \(code 1\)", str(raised.value))
    assert x.tolist() == [2, 7, 1]


@triton.jit(debug=True)
def masked(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.device_assert(tl.load(x + i, mask=i < n) > 0, "positive", mask=i < n)


@modes
def test_a_masked_assertion_asks_only_where_it_is_on(mode):
    x = np.ones(5, np.float32)
    cpu_samples.run(masked, (1,), mode, x=x, n=5, BLOCK=8)
    x[4] = -1
    with pytest.raises(LaunchError, match=r"index \(4\)"):
        cpu_samples.run(masked, (1,), mode, x=x, n=5, BLOCK=8)


@triton.jit(debug=True)
def overflows(x, n):
    tl.store(x, n * n)


@modes
def test_debug_looks_for_integer_overflow(mode):
    x = np.zeros(1, np.int32)
    cpu_samples.run(overflows, (1,), mode, x=x, n=40000)
    assert x[0] == 1_600_000_000
    with pytest.raises(LaunchError, match="int32 overflow detected for operation mul"):
        cpu_samples.run(overflows, (1,), mode, x=x, n=50000)


@triton.jit
def inner(v):
    tl.device_assert(v < 3, "small")
    return v + 1


inner_kept = triton.jit(inner.fn, noinline=True, debug=True)


@triton.jit(debug=True)
def calls(x):
    v = tl.load(x)
    tl.store(x, inner_kept(v))


@modes
def test_an_assertion_in_a_function_that_is_called(mode):
    x = np.array([2], np.int32)
    cpu_samples.run(calls, (1,), mode, x=x)
    assert x[0] == 3
    with pytest.raises(LaunchError, match=f"{FILE}:{line_of(inner, 'device_assert')}: small"):
        cpu_samples.run(calls, (1,), mode, x=x)


def job(kernel, debug=None, **arguments):
    source = TritonSource.of(kernel)
    facts = {name: cpu_samples._facts(value) for name, value in arguments.items()}
    signature, facts = source.specialize(facts)
    config = Config() if debug is None else Config.of(debug=debug)
    variant = Variant(source.name, source.fingerprint, signature, facts, config, host_target())
    return CpuCompiler().lower(source, variant).job


@triton.jit(debug=True)
def speaks_of_itself(x, out):
    v = tl.load(x)
    tl.device_print("silo_kernel_speaks_of_itself is", v)
    tl.device_assert(v > 0, "silo_kernel_speaks_of_itself needs more than 0")
    tl.store(out, v)


@modes
def test_text_of_the_user_is_never_taken_for_code(mode, capfd):
    x, out = np.array([3], np.int32), np.zeros(1, np.int32)
    cpu_samples.run(speaks_of_itself, (1,), mode, x=x, out=out)
    assert capfd.readouterr().out == "pid (0, 0, 0) idx () silo_kernel_speaks_of_itself is: 3\n"
    assert out[0] == 3
    x[0] = 0
    with pytest.raises(LaunchError, match="silo_kernel_speaks_of_itself needs more than 0"):
        cpu_samples.run(speaks_of_itself, (1,), mode, x=x, out=out)


def test_a_checked_kernel_speaks_as_it_is_written(capfd):
    x, out = np.array([3], np.int32), np.zeros(1, np.int32)
    silo.check(speaks_of_itself)[(1,)](x, out)
    assert "idx () silo_kernel_speaks_of_itself is: 3\n" in capfd.readouterr().out


ARGUMENTS = {"x": np.ones(8, np.float32), "out": np.ones(8, np.float32), "n": 8, "BLOCK": 4}


def test_what_asks_for_assertions(monkeypatch):
    plain = job(asserts, **ARGUMENTS)
    assert "tt.assert" not in plain.text
    assert "lines" not in plain.parameters
    assert "tt.assert" in job(asserts, debug=True, **ARGUMENTS).text
    assert "tt.assert" in job(debugged, **ARGUMENTS).text
    identity = CpuCompiler().identity(host_target())
    monkeypatch.setattr(triton.knobs.runtime, "debug", True)
    assert "tt.assert" in job(asserts, **ARGUMENTS).text
    assert CpuCompiler().identity(host_target()) != identity, "or a plain artifact would serve the call"


def test_jobs_hold_lines_and_no_paths():
    made = job(debugged, **ARGUMENTS)
    assert made.parameters["lines"][-1] == f"{FILE}:{line_of(asserts, 'device_assert')}"
    assert str(__file__) not in str(made.to_json())


@triton.jit
def static(x, BLOCK: tl.constexpr):
    tl.static_print("the block is", BLOCK)
    tl.static_assert(BLOCK > 2, "BLOCK is larger")
    tl.store(x, BLOCK)


def test_static_messages_come_at_compile_time(capfd):
    x = np.zeros(1, np.int32)
    cpu_samples.run(static, (1,), "optimized", x=x, BLOCK=4)
    assert x[0] == 4
    assert "the block is 4" in capfd.readouterr().out
    cpu_samples.run(static, (1,), "optimized", x=x, BLOCK=4)
    assert capfd.readouterr().out == ""
    with pytest.raises(CompileError, match="BLOCK is larger"):
        cpu_samples.run(static, (1,), "optimized", x=x, BLOCK=2)


@triton.jit
def prints_beside_a_product(x, y, out, depth):
    i, k = tl.arange(0, 16), tl.arange(0, 16)
    total = tl.zeros((16, 16), tl.float32)
    for step in range(tl.cdiv(depth, 16)):
        tl.device_print("step", step)
        left = tl.load(x + i[:, None] * 32 + step * 16 + k[None, :], mask=k[None, :] < depth - step * 16, other=0.0)
        right = tl.load(y + (step * 16 + k[:, None]) * 16 + i[None, :], mask=k[:, None] < depth - step * 16, other=0.0)
        total = tl.dot(left, right, total)
    tl.store(out + i[:, None] * 16 + k[None, :], total)


@modes
def test_a_loop_whose_rounds_may_become_one_product_prints_once_a_round(mode, capfd):
    x, y, out = np.ones((16, 32), np.float32), np.ones((32, 16), np.float32), np.zeros((16, 16), np.float32)
    cpu_samples.run(prints_beside_a_product, (1,), mode, x=x, y=y, out=out, depth=24)
    assert capfd.readouterr().out.splitlines() == [f"pid (0, 0, 0) idx () step: {step}" for step in range(2)]
    assert (out == 24).all()


def test_a_failed_assertion_is_a_runtime_error() -> None:
    # The kind of fault: a program catches the class that Triton and torch raise, and the error of Silo's is none.
    import numpy as np

    import silo

    @silo.kernel
    @triton.jit(debug=True)
    def positive(x):
        tl.device_assert(tl.load(x) < 0, "positive")

    with pytest.raises(RuntimeError, match=r"device-side assert at .*: positive"):
        positive[(1,)](np.ones(1, "float32"))
