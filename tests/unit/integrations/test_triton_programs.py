"""Triton programs whose launches Silo takes over, on the stub driver: Triton's own path is the oracle."""

import triton_on_stub

HEAD = """
from triton_on_stub import *
import random, torch, triton, triton.language as tl
import silo
from silo.integrations.triton_programs import TABLE
install()
S = stub()

@triton.jit
def k(a, b, out, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i, mask=i < n) + tl.load(b + i, mask=i < n) * scale, mask=i < n)

def kernel(function=k):
    return next(one for one in TABLE if one.function is function)

x, y, z = array(), array(), array()
"""


def program(code, **more):
    return triton_on_stub.run(HEAD + code, **more)


def test_triton_compiles_and_the_second_launch_is_silos():
    program("""
before = dict(vars(type(k))), set(vars(k))
with silo.accelerate():
    first = k[(4,)](x, y, z, 1000, 2.0, BLOCK=256)
    seen = S.last("k")
    second = k[(4,)](x, y, z, 1000, 2.0, BLOCK=256)
    assert first is second and second.n_regs is not None and second.asm["cubin"]
    assert S.last("k").count == 2 and S.last("k").parameters == seen.parameters
    assert kernel().launches == (1, 1), kernel().launches
    assert len(k.device_caches[0][0]) == 1
    (variant,) = kernel().variants
    assert variant.program.entry == "k" and variant.launch.num_warps == 4 and variant.options == {}
    assert str(variant.target) == "cuda:sm_90a" and variant.specialization.constant_values == {"BLOCK": 256}
    assert [str(one.dtype) for one in variant.signature.parameters[:4]] == ["float32", "float32", "float32", "int32"]
    assert variant.kernel.fingerprint and variant.kernel.source.name == "k"
assert dict(vars(type(k))) == before[0]
assert "_silo_kernel" not in vars(k)
k[(4,)](x, y, z, 1000, 2.0, BLOCK=256)
assert S.last("k").count == 3
""")


def test_random_launches_give_the_driver_the_bytes_of_tritons_own_path():
    program("""
chance = random.Random(5)

def call(launch):
    arguments = [chance.choice([one, one.at(4), one.at(16), None])
                 if chance.random() < 0.3 else one for one in (x, y)] + [z]
    n = chance.choice([1, 16, 1000, 2**31, -3, True])
    scale = chance.choice([1.5, 7, False])
    block = 64
    options = chance.choice([{}, {"num_warps": 8}])
    grid = chance.choice([(4,), (1, 2), (3, 2, 2), (0,), lambda meta: (meta["BLOCK"] // 64, 1), [5]])
    stream, DRIVER[0].stream = DRIVER[0].stream, chance.choice([0, 64])
    if chance.random() < 0.5:
        way = lambda: k[grid](*arguments, n, scale, BLOCK=block, **options)
    else:
        way = lambda: k.run(*arguments, n, scale=scale, BLOCK=block, grid=grid, warmup=False, **options)
    before = S.last("k").count
    try:
        way()
    except Exception as error:
        return type(error).__name__
    seen = S.last("k")
    if seen.count == before:
        return "nothing"
    return seen.grid, seen.block, seen.attributes, seen.parameters, seen.stream, seen.shared

own = [call(k) for _ in range(400)]
chance.seed(5)
with silo.accelerate():
    ours = [call(k) for _ in range(400)]
    served = kernel().launches[0]
assert own == ours, next((a, b) for a, b in zip(own, ours) if a != b)
assert served > 60, served
""")


def test_hooks_globals_knobs_and_streams_are_tritons():
    program("""
import triton.knobs as knobs
from triton.runtime.jit import JITFunction
seen = []
with silo.accelerate():
    def launch():
        return k[(4,)](x, y, z, 1000, 2.0, BLOCK=256)
    launch(), launch()
    served = kernel().launches[0]
    def enter(metadata):
        seen.append(metadata.get()["name"])
    chain = knobs.runtime.launch_enter_hook
    if hasattr(chain, "add"):
        chain.add(enter); launch(); chain.remove(enter)
    else:
        knobs.runtime.launch_enter_hook = enter; launch(); knobs.runtime.launch_enter_hook = chain
    assert seen == ["k"] and kernel().launches[0] == served, (seen, kernel().launches)
    launch()
    assert seen == ["k"] and kernel().launches[0] == served + 1
    k.add_pre_run_hook(lambda *args, **kwargs: seen.append("pre"))
    launch()
    assert seen == ["k", "pre"]
    k.pre_run_hooks.clear()
    DRIVER[0].stream = 4096
    launch()
    assert S.last("k").stream == 4096
    DRIVER[0].stream = 0
    compiled = len(k.device_caches[0][0])
    knobs.runtime.debug = True
    launch()
    assert len(k.device_caches[0][0]) == compiled + 1
    knobs.runtime.debug = False
    launch()
    assert len(k.device_caches[0][0]) == compiled + 1
    k.device_caches[0][0].clear()
    launch()
    assert len(k.device_caches[0][0]) == 1
""")


def test_a_changed_global_raises_as_in_triton():
    program("""
FACTOR = tl.constexpr(3)

@triton.jit
def g(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), FACTOR)

with silo.accelerate():
    g[(1,)](z, BLOCK=16), g[(1,)](z, BLOCK=16)
    assert kernel(g).launches[0] == 1
    FACTOR = tl.constexpr(4)
    try:
        g[(1,)](z, BLOCK=16)
    except RuntimeError as error:
        assert "has changed since we compiled" in str(error)
    else:
        raise AssertionError("it did not raise")
""")


def test_nested_and_undone_in_any_order():
    program("""
from triton.runtime.jit import JITFunction
before = dict(vars(JITFunction))
a = silo.accelerate()
b = silo.accelerate()
a.stop(); a.stop()
assert b and vars(JITFunction) != before
k[(1,)](x, y, z, 10, 2.0, BLOCK=64)
b.stop()
assert dict(vars(JITFunction)) == before and "_silo_kernel" not in vars(k) and not b
with silo.accelerate(), silo.accelerate():
    k[(1,)](x, y, z, 10, 2.0, BLOCK=64)
assert dict(vars(JITFunction)) == before
""")


def test_a_program_that_patches_run_afterwards_keeps_its_patch():
    program("""
from triton.runtime.jit import JITFunction
seen = []
with silo.accelerate():
    k[(1,)](x, y, z, 10, 2.0, BLOCK=64)
    ours = JITFunction.run
    def run(self, *args, **kwargs):
        seen.append(kwargs["grid"])
        return ours(self, *args, **kwargs)
    JITFunction.run = run
    k[(2,)](x, y, z, 10, 2.0, BLOCK=64)
    assert seen == [(2,)] and kernel().launches[0] == 1
assert JITFunction.run is run
k[(3,)](x, y, z, 10, 2.0, BLOCK=64)
assert seen == [(2,), (3,)] and S.last("k").count == 3
""")
