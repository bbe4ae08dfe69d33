"""Facts of code: what a front end says of a kernel besides the job, read from its text once."""
# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

import numpy as np
import pytest

import silo
from silo.building.compilation import lowered
from silo.core.code_facts import CodeFacts
from silo.core.decisions import Rejected
from silo.core.signature import Effect
from silo.kinds.triton.cpu import cpu_jobs
from silo.kinds.triton.front import facts as ttir_facts
from silo.settings import override

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))


@triton.jit
def through(addresses, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(addresses).to(tl.pointer_type(tl.float32))
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


SPACE = [{"BLOCK": 256}, {"BLOCK": 512}]


def facts_of(kernel, *args):
    """The facts of the first config's code in a call."""
    resolver = kernel.kernel.resolver
    call = silo.launch.runtime.inspect_call(resolver.native, kernel.kernel.source.signature, *args, grid=(1,))
    situation = resolver.understand(call)
    return lowered(kernel.kernel.source, resolver.variant(situation, situation.candidates[0])).facts


@pytest.fixture(autouse=True)
def _store(tmp_path):
    with override(home=tmp_path / "home", jobs=2):
        yield


@pytest.fixture
def parses(monkeypatch):
    """The texts that were parsed in this process, in order."""
    found = []
    original = ttir_facts.parse_ttir

    def parse(text):
        found.append(text)
        return original(text)

    for module in (ttir_facts, cpu_jobs):
        monkeypatch.setattr(module, "parse_ttir", parse)
    return found


def vector(dtype=np.float32):
    return np.ones(256, dtype)


def test_the_front_end_says_what_the_code_does():
    found = facts_of(silo.kernel(add, space=SPACE), vector(), vector(), vector(), 256)
    assert dict(found.effects) == {"x": Effect.READ, "y": Effect.READ, "out": Effect.WRITE}
    assert found.shows_its_memory
    assert found.numerics.ordered == ()
    assert (found.traits.loads, found.traits.stores) == (2, 1)
    assert found.traits.blocks[256].limits == ("n",)
    assert found.traits.blocks[256].placed


def test_sums_and_hidden_memory_are_told():
    assert facts_of(silo.kernel(total, space=SPACE), vector(), vector(), 256).numerics.ordered == ("1 reduction",)
    hidden = facts_of(silo.kernel(through, space=SPACE), vector(np.int64), vector(), 256).shows_its_memory
    assert hidden == Rejected("it makes addresses of integers")


def test_nothing_known_is_nothing_assumed():
    nothing = CodeFacts()
    assert (dict(nothing.effects), nothing.traits, nothing.numerics) == ({}, None, None)


def test_a_call_parses_the_text_of_its_kernel_once(parses):
    kernel = silo.kernel(add, space=[{"BLOCK": 128}], tune="off")
    kernel[(2,)](vector(), vector(), vector(), 256)
    assert len(parses) == 1


def test_a_look_at_the_code_is_none_more(parses):
    kernel = silo.kernel(total, space=[{"BLOCK": 512}, {"BLOCK": 1024}], deterministic=True)
    with override(tune="off"):
        kernel[(1,)](vector(), vector(), 256)
    assert len(parses) == 1, "the first config sums, so no other is looked at, and it is the one that is compiled"
