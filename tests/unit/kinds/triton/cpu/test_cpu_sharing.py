"""Buffers that share scratch memory are looked at once more, from the finished statements alone."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from cpu_samples import module_of, needs_compiler
from silo.errors import CompileError
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.emit.kernel_text import emit_c
from silo.kinds.triton.cpu.loop_ir import Assign, Copy, Define, For, Forever, If, LoopBuffer, LoopCall, Statement
from silo.kinds.triton.cpu.lower.overlap import check_sharing, clashes
from silo.kinds.triton.cpu.schedule.scratch_layout import Lifetimes

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

ROUNDS = "(int64_t)s1"  # the end of a loop of the kernel's own, which no constant is


def at(name, offset, *, kept=False):
    """A buffer of 64 bytes."""
    return LoopBuffer(name, "float", 16, 4, offset, kept=kept)


def nest(target, source="0"):
    return For("i1", "0", "16", [Assign(f"{target}[i1]", source)])


def found(body, *buffers):
    return {one.name + two.name for one, two in clashes(buffers, body)}


def test_buffers_used_one_after_the_other_may_share():
    body: list[Statement] = [nest("b1"), nest("b2", "b1[i1]"), nest("b3", "b2[i1]"), LoopCall("f(b3)")]
    assert found(body, at("b1", 0), at("b2", 64), at("b3", 0)) == set()
    assert found(body, at("b1", 0), at("b2", 0), at("b3", 64)) == {"b1b2"}
    assert found(body, at("b1", 0), at("b2", 32), at("b3", 96)) == {"b1b2"}, "parts of them"


@pytest.mark.parametrize(
    "loop",
    [lambda body: For("n1", "0", ROUNDS, body), Forever, lambda body: For("n1", "0", ROUNDS, [If("s2", body, [])])],
)
def test_what_a_loop_found_it_needs_again_in_the_next_round(loop):
    body = [nest("b1"), loop([nest("b2", "b1[i1]"), nest("b3", "b2[i1]")])]
    assert found(body, at("b1", 0), at("b2", 64), at("b3", 64)) == {"b2b3"}
    assert found(body, at("b1", 0), at("b2", 64), at("b3", 0)) == {"b1b3"}
    assert found([*body, nest("b4")], at("b1", 0), at("b2", 64), at("b3", 128), at("b4", 0)) == set()


def test_rounds_of_one_nest_may_read_what_others_wrote():
    inner = [Assign("b1[i1]", "i1 ? b1[i1 - 1] : 0"), Define("float", "t1", "b1[i1]"), Assign("b2[i1]", "t1")]
    assert found([For("i1", "0", "16", inner)], at("b1", 0), at("b2", 0)) == {"b1b2"}


def test_what_is_kept_for_the_next_program_shares_with_nothing():
    body: list[Statement] = [LoopCall("product(b1)"), nest("b2")]
    assert found(body, at("b1", 0), at("b2", 0)) == set()
    assert found(body, at("b1", 0, kept=True), at("b2", 0)) == {"b1b2"}


def test_a_clash_names_function_and_buffers():
    one, two = at("b1", 0), at("b12", 0)
    check_sharing("silo_kernel_k", [one, two], [nest("b1"), nest("b12")])
    with pytest.raises(CompileError, match=r"silo_kernel_k.*b1 \(0 to 64\) and b12"):
        check_sharing("silo_kernel_k", [one, two], [Copy(one, two)])


@triton.jit
def centred_product(x, y, out, n):
    i, j, k = tl.arange(0, 16), tl.arange(0, 64), tl.arange(0, 16)
    total = tl.zeros((16, 64), tl.float32)
    for step in range(n):
        left = tl.load(x + i[:, None] * 64 + step * 16 + k[None, :])
        total = tl.dot(left, tl.load(y + (step * 16 + k[:, None]) * 64 + j[None, :]), total)
    tl.store(out + i[:, None] * 64 + j[None, :], total - tl.sum(total, 1)[:, None])


@triton.jit
def held_over_a_loop(x, y, out, n):
    """Holds a tile over a loop whose rounds need memory of their own."""
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    held = tl.cumsum(tl.load(x + i * 16 + j), 1)
    total = tl.zeros((16, 16), tl.float32)
    for step in range(n):
        rows = tl.sort(held + tl.load(y + step * 16 + j))
        total += tl.cumsum(rows, 0) * tl.sum(rows, 1)[:, None]
    tl.store(out + i * 16 + j, total)


@contextmanager
def _forgets_what_is_kept(self):
    self.clock += 1
    start = self.clock
    yield
    self.clock += 1
    for span in self.spans.values():
        if span[0] < start <= span[1]:
            span[1] = self.clock


@contextmanager
def _forgets_the_next_round(self):
    self.clock += 1
    yield
    self.clock += 1


@needs_compiler
@pytest.mark.parametrize(
    ("kernel", "faulty"), [("centred_product", _forgets_what_is_kept), ("held_over_a_loop", _forgets_the_next_round)]
)
def test_a_fault_in_placing_buffers_is_an_error_and_no_wrong_result(monkeypatch, kernel, faulty):
    arguments = {name: np.zeros(1024, np.float32) for name in ("x", "y", "out")} | {"n": 4}
    assert emit_c(module_of(globals()[kernel], arguments), CpuOptions()).source
    monkeypatch.setattr(Lifetimes, "loop", faulty)
    module = module_of(globals()[kernel], arguments)
    with pytest.raises(CompileError, match="overwrite each other"):
        emit_c(module, CpuOptions())
