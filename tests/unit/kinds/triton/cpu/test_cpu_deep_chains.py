# ruff: noqa: E402  # Triton may be absent, which comes first
# pyright: reportGeneralTypeIssues=false, reportCallIssue=false
"""Kernels of long chains of dependent operations: no pass follows a chain by Python's stack, or doubles what is shared.

Each kernel stands for one way in which values can depend on each other.
"""

import functools
import inspect
import sys

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl

from cpu_samples import module_of, needs_compiler, run
from repetitions import EVERYTHING
from silo.kinds.triton.cpu.analysis.costs import program_nanoseconds
from silo.kinds.triton.cpu.analysis.value_properties import all_of, any_of, fold
from silo.kinds.triton.cpu.checking.instrument import instrument
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.emit.kernel_text import emit_c
from silo.kinds.triton.front.ssa_facts import argument_effects, numerics_of, traits_of
from silo.kinds.triton.front.verifier import verify

MODES = ("optimized", "reference")
LINKS = 300
N = 16
FRAMES = 330  # that the passes get, whatever a kernel is


@triton.jit
def floats(x, out, n, U: tl.constexpr):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    for _ in tl.static_range(U):
        a = a * 0.5 + 1.0
    tl.store(out + i, a)


@triton.jit
def integers(x, out, n, U: tl.constexpr):
    i = tl.arange(0, 16)
    a = i
    for u in tl.static_range(U):
        a = (a ^ (a >> 1)) + u
    tl.store(out + i, (a & 1023).to(tl.float32))


@triton.jit
def scalars(x, out, n, U: tl.constexpr):
    s = n
    for _ in tl.static_range(U):
        s = (s * 3 + (s >> 1)) & 1023
    tl.store(out + tl.arange(0, 16), tl.zeros([16], tl.float32) + s)


@triton.jit
def pointers(x, out, n, U: tl.constexpr):
    i = tl.arange(0, 16)
    p = x + i
    a = tl.zeros([16], tl.float32)
    for _ in tl.static_range(U):
        a += tl.load(p)
        p += n
    tl.store(out + i, a)


@triton.jit
def chase(x, out, n, U: tl.constexpr):
    i = tl.arange(0, 16)
    j = i
    for _ in tl.static_range(U):
        j = tl.load(x + j).to(tl.int32) & 15
    tl.store(out + i, j.to(tl.float32))


@triton.jit
def masks(x, out, n, U: tl.constexpr):
    i = tl.arange(0, 16)
    m = i < n
    a = tl.zeros([16], tl.float32)
    for u in tl.static_range(U):
        m = m & (i * (u + 1) < n * 1000)
        a += tl.load(x + i, mask=m, other=0.0)
    tl.store(out + i, a, mask=m)


@triton.jit
def choices(x, out, n, U: tl.constexpr):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    for u in tl.static_range(U):
        a = tl.where(a > u, a - u, a + 1.0)
    tl.store(out + i, a)


@triton.jit
def shared(x, out, n, U: tl.constexpr):
    """Every value is used twice by the next: what is evaluated once for each use doubles at each link."""
    i = tl.arange(0, 16)
    a, j = tl.load(x + i), i
    for _ in tl.static_range(U):
        a = a * a * 0.01 + a * 0.5
        j = j + j
    tl.store(out + i, a + tl.load(x + (j & 15)))


@triton.jit
def turns(x, out, n, U: tl.constexpr):
    i = tl.arange(0, 4)
    a = tl.load(x + i[:, None] * 4 + i[None, :])
    for _ in tl.static_range(U):
        a = tl.trans(a) * 0.5 + a * 0.25
    tl.store(out + i[:, None] * 4 + i[None, :], a)


@triton.jit
def reductions(x, out, n, U: tl.constexpr):
    i = tl.arange(0, 4)
    a = tl.load(x + i[:, None] * 4 + i[None, :])
    for _ in tl.static_range(U):
        a = a - tl.max(a, axis=1)[:, None] * 0.5
    tl.store(out + i[:, None] * 4 + i[None, :], a)


@triton.jit
def stores(x, out, n, U: tl.constexpr):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    for _ in tl.static_range(U):
        a = a * 0.5 + 1.0
        tl.store(out + i, a)


@triton.jit
def loops(x, out, n, U: tl.constexpr):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    for k in range(n):
        for _ in tl.static_range(U):
            a = a * 0.5 + 1.0
        if k > 1:
            for _ in tl.static_range(U):
                a = a * 0.5 - 1.0
    tl.store(out + i, a)


@triton.jit
def branches(x, out, n, U: tl.constexpr):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    for u in tl.static_range(U):
        if n > u:
            a = a * 0.5 + 1.0
    tl.store(out + i, a)


KERNELS = [
    floats, integers, scalars, pointers, chase, masks, choices, shared, turns, reductions, stores, loops, branches,
]  # fmt: skip


def arguments(links, n=3):
    rng = np.random.default_rng(0)
    return {
        "x": (rng.random(n * links + N) * 15).astype(np.float32),
        "out": np.zeros(N, np.float32),
        "n": n,
        "U": links,
    }


@pytest.fixture
def few_frames():
    """Fewer of Python's frames than a chain has links."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + FRAMES)
    yield
    sys.setrecursionlimit(before)


@functools.cache
def chain(kernel):
    return module_of(kernel, arguments(LINKS))


@pytest.mark.usefixtures("few_frames")
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_every_pass_follows_a_chain_longer_than_pythons_stack(kernel):
    module = chain(kernel)
    verify(module)
    program_nanoseconds(module)
    argument_effects(module)
    traits_of(module, ["x", "out", "n"])
    numerics_of(module)
    for mode in MODES:
        text = emit_c(module, CpuOptions(mode=mode)).source
        assert len(text) < 2000 * LINKS + 200_000, "what values share is written once"
        assert deepest(text) <= 250, "a C compiler may refuse more than 256 nested parentheses"


@pytest.mark.usefixtures("few_frames")
@pytest.mark.parametrize("kernel", [floats, pointers, masks, loops], ids=lambda kernel: kernel.__name__)
def test_checks_follow_it_too(kernel):
    module = chain(kernel)
    verify(module)
    assert instrument(module, nan=True)


def test_four_thousand_links():
    for kernel in (floats, chase) if EVERYTHING else (chase,):
        assert emit_c(module_of(kernel, arguments(4096)), CpuOptions()).source


@needs_compiler
@pytest.mark.parametrize("kernel", [floats, integers, chase, pointers, shared], ids=lambda kernel: kernel.__name__)
def test_both_modes_compute_the_same(kernel):
    results = []
    for mode in MODES:
        given = arguments(200)
        run(kernel, (1,), mode, **given)
        results.append(given["out"])
    assert np.any(results[0])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4)


def deepest(text):
    depth = most = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        most = max(most, depth)
    return most


def test_a_fold_asks_each_node_once():
    asked = []

    def result(node, found):
        asked.append(node)
        return sum(found) or 1

    parts = {0: [1, 2], 1: [2, 2], 2: []}
    assert fold(0, parts.__getitem__, result) == 3
    assert asked == [2, 1, 0]
    assert fold(1, parts.__getitem__, result, {2: 5}) == 10
    assert all_of(0, parts.__getitem__)
    assert any_of(0, lambda node: None if node == 2 else parts[node])
