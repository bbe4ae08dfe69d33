"""Launches of unchanged programs beyond pointers and numbers: descriptors, scratch memory, hooks; on the stub driver.

Triton's own path is the oracle: each call is made without Silo first, and the bytes that the driver got are compared.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import silo
from triton_on_stub import run
from triton_programs import HEAD, program

pytest.importorskip("torch", reason="Triton's driver for NVIDIA's GPUs asks torch for dtypes here")

DESCRIPTORS = """
from triton.tools.tensor_descriptor import TensorDescriptor
import math
F16 = torch.float16

from triton_on_stub import Array
class Tensor(Array):
    # What Triton's descriptor asks of its base besides an address.
    def __init__(self, shape, dtype=F16):
        # Of arrays below 128 KiB later Tritons change one bit of a map, on which earlier ones fail, and Silo does.
        room = array(max(math.prod(shape), 1 << 19), dtype)
        super().__init__(room.address, dtype, room.device, room.owner)
        self.shape = shape

def descriptor(shape, block, dtype=F16, **more):
    strides = [math.prod(shape[axis + 1:]) for axis in range(len(shape))]
    return TensorDescriptor(Tensor(shape, dtype), list(shape), strides, list(block), **more)

@triton.jit
def copy(d, out, B: tl.constexpr, N: tl.constexpr):
    at = tl.program_id(0) * B
    block = d.load([at, 0])
    tl.store(out + (at + tl.arange(0, B))[:, None] * N + tl.arange(0, N)[None, :], block)

@triton.jit
def move(d, e, B: tl.constexpr):
    e.store([tl.program_id(0) * B, 0], d.load([tl.program_id(0) * B, 0]) * 2)

def bytes_of(name, call):
    before = S.last(name).count
    call()
    seen = S.last(name)
    assert seen.count == before + 1
    return seen.grid, seen.block, seen.shared, seen.parameters
"""


def test_descriptors_reach_the_driver_as_tritons_own_path_passes_them():
    program(
        DESCRIPTORS
        + """
d, e = descriptor((2048, 64), (16, 32)), descriptor((2048, 64), (16, 32))
out = Tensor((2048, 64))
calls = []
def change(what):
    def call():
        what()
        copy[(4,)](d, out, 16, d.block_shape[1])
        move[(2,)](d, e, 16)
    calls.append(call)
change(lambda: None)
change(lambda: None)
def shape(): d.shape = [2040, 40]
change(shape)
def in_place(): d.shape[0] = 2032
change(in_place)
def strides(): d.strides = [128, 1]
change(strides)
other = Tensor((2048, 128))
def base(): d.base = other
change(base)
def padding(): d.padding = "nan"
change(padding)
def block(): d.block_shape = [16, 64]; e.block_shape = [16, 64]
change(block)
def block_again(): d.block_shape[1] = 32; e.block_shape[1] = 32
change(block_again)

def run():
    seen = []
    for call in calls:
        call()
        seen.append([(S.last(name).grid, S.last(name).shared, S.last(name).parameters) for name in ("copy", "move")])
    return seen

import copy as copies
start = copies.deepcopy((d.shape, d.strides, d.block_shape, d.padding)), d.base, list(e.block_shape)
def restore():
    (shape, strides, block, d.padding), d.base = copies.deepcopy(start[0]), start[1]
    d.shape, d.strides, d.block_shape, e.block_shape = shape, strides, block, list(start[2])

own = run()
restore()
assert len({repr(one) for one in own}) == 7, len({repr(one) for one in own})
with silo.accelerate():
    for turn in range(3):
        assert run() == own, turn
        restore()
    for one in (copy, move):
        # Two block shapes, two kinds of calls: the first launch of each is Triton's.
        assert kernel(one).launches == (3 * 9 - 2, 2), (one, kernel(one).launches)
        assert not kernel(one).refusals
    (variant, _) = kernel(move).variants
    assert [one.name for one in variant.launch.tensor_maps] == ["d", "e"]
"""
    )


def test_a_config_may_set_the_block_shape_of_the_same_descriptor():
    program(
        DESCRIPTORS
        + """
def set_block(given):
    given["d"].block_shape = [given["B"], 32]

@triton.autotune([triton.Config({"B": 16}, pre_hook=set_block), triton.Config({"B": 32}, pre_hook=set_block)], key=[])
@triton.jit
def tuned(d, out, B: tl.constexpr):
    at = tl.program_id(0) * B
    tl.store(out + (at + tl.arange(0, B))[:, None] * 32 + tl.arange(0, 32)[None, :], d.load([at, 0]))

measured = []
def bench(call, quantiles):
    call()
    measured.append(1)
    return [1.0 / len(measured)] * 3
tuned.do_bench = bench
tuned._do_bench = bench
d, out = descriptor((4096, 32), (16, 32)), Tensor((4096, 32))
with silo.accelerate():
    for turn in range(6):
        if turn % 2:
            d.block_shape = [16, 32]
        tuned[(2,)](d, out)
        assert d.block_shape == [32, 32]
        assert S.last("tuned").parameters[0] != b""
    assert kernel(tuned.fn).launches[0] >= 4, kernel(tuned.fn).launches
silos = S.last("tuned").parameters
tuned[(2,)](d, out)
assert S.last("tuned").parameters == silos
"""
    )


def test_descriptors_of_other_forms_go_tritons_way_with_a_reason():
    program(
        DESCRIPTORS
        + """
class Odd(TensorDescriptor):
    pass

from dataclasses import dataclass
@dataclass
class Wide(TensorDescriptor):
    layout: object = None

d, out = descriptor((2048, 64), (16, 32)), Tensor((2048, 64))
own = bytes_of("copy", lambda: copy[(4,)](d, out, 16, 32))
wide = Wide(d.base, d.shape, d.strides, d.block_shape)
with silo.accelerate():
    for one in (d, Odd(d.base, d.shape, d.strides, d.block_shape), wide):
        for _ in range(3):
            assert bytes_of("copy", lambda: copy[(4,)](one, out, 16, 32)) == own
    d.shape = [64]
    try:
        copy[(4,)](d, out, 16, 32)
    except Exception as error:
        assert "ank" in str(error), error  # Triton's words
    else:
        raise AssertionError("a rank that does not match")
"""
    )


SCRATCH = """
@triton.jit
def scratched(x, out, M, N: tl.constexpr, B: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, N])
    o = tl.make_tensor_descriptor(out, [M, N], [N, 1], [B, N])
    o.store([tl.program_id(0) * B, 0], d.load([tl.program_id(0) * B, 0]) * 2)

asked = []
buffers = []
def allocate(size, alignment, stream):
    asked.append((size, alignment, stream))
    buffers.append(array(max(size, 1) + 256))
    return buffers[-1]
def launch(grid=(4, 2)):
    return scratched[grid](x, y, 64, 32, 16)
def raises(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("it did not raise")
"""


def test_scratch_memory_comes_from_tritons_allocator_at_each_launch():
    program(
        SCRATCH
        + """
import contextvars, threading
none = raises(launch)
assert "set_allocator" in none
triton.set_allocator(allocate)
launch()
own, seen = asked.pop(), S.last("scratched")
with silo.accelerate():
    launch()
    assert asked == [own]
    DRIVER[0].stream = 64
    for count in range(3):
        launch()
        assert asked[-1] == (*own[:2], 64), asked
        last = S.last("scratched")
        at = [index for index, (now, then) in enumerate(zip(last.parameters, seen.parameters)) if now != then]
        assert len(last.parameters) == len(seen.parameters) and len(at) == 1, at
        assert int.from_bytes(last.parameters[at[0]], "little") == buffers[-1].address
    DRIVER[0].stream = 0
    assert kernel(scratched).launches == (3, 1), kernel(scratched).launches
    launch((1, 1, 1))
    assert asked[-1][0] == own[0] // 8
    count = len(asked)
    launch((0, 4))  # nothing is launched, and nothing allocated
    launch(lambda meta: (4, 0))
    assert len(asked) == count and S.last("scratched").grid == (1, 1, 1)
    # The allocator of the context that launches.
    out = []
    def without():
        out.append(raises(launch))
    if triton.__version__ >= "3.5":
        thread = threading.Thread(target=without, context=contextvars.Context()) if sys.version_info >= (3, 14) else (
            threading.Thread(target=lambda: contextvars.Context().run(without)))
        thread.start(); thread.join()
        assert out == [none], out
    # Silo's own is for kernels of Silo.
    silo.set_allocator(lambda *given: 1 / 0)
    launch()
    silo.set_allocator(None)
    class Broken(Exception): pass
    def broken(*given): raise Broken
    triton.set_allocator(broken)
    try:
        launch()
    except Broken:
        pass
    else:
        raise AssertionError("an allocator's error was lost")
    triton.set_allocator(allocate)
    launch()
    assert kernel(scratched).launches[1] == 1, kernel(scratched).launches
"""
    )


HOOKS = """
import triton.knobs as knobs
runtime = knobs.runtime

def described(grid, metadata, arguments):
    made.append(1)
    return {"name": f"described {metadata.name} {arguments['n']}", "grid": grid, "flops": arguments["n"] * 2}

made = []
@triton.jit(launch_metadata=described)
def measured(a, out, n, BLOCK: tl.constexpr = 64):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i, mask=i < n), mask=i < n)

@triton.jit
def plain(a, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(a + i, mask=i < n), mask=i < n)

log = []
counted = lambda: S.last("measured").count + S.last("plain").count
def enter(lazy):
    log.append(("enter", counted(), type(lazy).__name__, dict(lazy.data), len(made)))
def second(lazy):
    log.append(("second", counted(), dict(lazy.get())))
def leave(lazy):
    log.append(("leave", counted(), dict(lazy.get()), len(made)))
def put():
    runtime.launch_enter_hook.add(enter); runtime.launch_enter_hook.add(second); runtime.launch_exit_hook.add(leave)
def take():
    runtime.launch_enter_hook.remove(enter); runtime.launch_enter_hook.remove(second)
    runtime.launch_exit_hook.remove(leave)

def run():
    # By every way, with a grid of each form.
    del log[:], made[:]
    start = counted()
    returned = [
        measured[(2,)](x, z, 48),
        measured[(2, 1, 1)](x, z, 64, BLOCK=128),
        measured[lambda meta: (meta["BLOCK"] // 64,)](x, z, 64, BLOCK=128),
        plain[(1,)](x, z, 64, BLOCK=64),
        plain.run(x, z, 64, BLOCK=64, grid=(3, 1), warmup=False),
        plain[(0,)](x, z, 64, BLOCK=64),
    ]
    return [(one[0], one[1] - start, *one[2:]) for one in log], [one.metadata.name for one in returned]
"""


def test_tritons_hooks_see_launches_of_silo_as_they_see_tritons_own():
    program(
        HOOKS
        + """
run()
put()
own = run()
take()
assert len(own[0]) == 18 and own[0][2][2]["name"] == "described measured 48", own
with silo.accelerate():
    for turn in range(3):
        run()
        assert log == [] and made == []
        before = kernel(measured).launches, kernel(plain).launches
        put()
        assert run() == own, (run(), own)
        after = kernel(measured).launches, kernel(plain).launches
        assert after[0][1] == before[0][1] and after[1][1] == before[1][1], (before, after)
        assert after[0][0] > before[0][0]
        take()
    # Hooks of Silo's are round them.
    order = []
    def silos(event):
        order.append(("silo", event.kernel))
        return lambda: order.append("silo's end")
    remove = silo.on_launch(silos)
    runtime.launch_enter_hook.add(lambda lazy: order.append("triton"))
    runtime.launch_exit_hook.add(lambda lazy: order.append("triton's end"))
    plain[(1,)](x, z, 64, BLOCK=64)
    assert order == [("silo", "plain"), "triton", "triton's end", "silo's end"], order
    remove()
    runtime.launch_enter_hook.calls.clear(), runtime.launch_exit_hook.calls.clear()
"""
    )


def test_hooks_that_raise_and_hooks_that_are_no_chains():
    program(
        HOOKS
        + """
class Refused(Exception): pass
def refuse(lazy):
    log.append("refuse")
    raise Refused
def call():
    return plain[(1,)](x, z, 64, BLOCK=64)
def outcome():
    del log[:]
    before = counted()
    try:
        call()
    except Refused:
        return "refused", counted() - before, list(log)
    return "launched", counted() - before, list(log)
def both(change, undo):
    change(); own = outcome(); undo()
    with silo.accelerate():
        call(), call()
        change(); silos = outcome(); undo()
        assert silos == own, (silos, own)
        assert kernel(plain).launches[1] == 1, kernel(plain).launches
    return own
call()
enters, leaves = runtime.launch_enter_hook, runtime.launch_exit_hook
assert both(lambda: enters.add(refuse), lambda: enters.remove(refuse)) == ("refused", 0, ["refuse"])
assert both(lambda: leaves.add(refuse), lambda: leaves.remove(refuse)) == ("refused", 1, ["refuse"])
def put_function():
    runtime.launch_enter_hook = lambda lazy: log.append(lazy.data["name"])
def put_chain():
    runtime.launch_enter_hook, runtime.launch_exit_hook = enters, leaves
assert both(put_function, put_chain) == ("launched", 1, ["plain"])
def put_none():
    runtime.launch_enter_hook = None
    runtime.launch_exit_hook = lambda lazy: log.append(lazy)
assert both(put_none, put_chain) == ("launched", 1, [None])
"""
    )


WARMED = """
import gc
def warmed(*arguments, **options):
    return k.warmup(*arguments, grid=(1,), **options)
def raised(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__
"""


def test_compiled_kernels_launched_by_hand_are_silos():
    program(
        WARMED
        + """
kind = triton.compiler.compiler.CompiledKernel
before = dict(vars(kind))
one = warmed(x, y, z, 1000, 2.0, BLOCK=256)
other = warmed(x, y, z, 2**40, 2.0, BLOCK=64)
flags = set(vars(one))
def launches():
    # Triton compares nothing with what the code was made for: neither 256 nor the alignment of x nor 1000.
    calls = [lambda: one[(4, 1, 1)](x, y, z, 1000, 2.0, 256), lambda: one[(3, 2, 1)](x.at(8), y, z, 17, -0.5, 256),
             lambda: one[(4, 1, 1)](x, None, z, 1, 3.0, 64), lambda: other[(4, 1, 1)](x, y, z, 5, 2.0, 64),
             lambda: other[(4, 1, 1)](x, y, z, 2**35, 2.0, 64)]
    seen = []
    for call in calls:
        for _ in range(2):
            assert call() is None
            last = S.last("k")
            seen.append((last.grid, last.block, last.stream, last.parameters))
    return seen
def refused():
    calls = [lambda: one[(4,)](x, y, z, 1000, 2.0, 256), lambda: one[(4, 1, 1)](x, y, z, "a", 2.0, 256),
             lambda: one[lambda meta: (4, 1, 1)](x, y, z, 1000, 2.0, 256)]
    return [raised(call) for call in calls]  # not with too few arguments: Triton's launcher reads beyond them
def wide():
    # 32 bits of it, or an error, as Triton's version has it.
    return raised(lambda: one[(4, 1, 1)](x, y, z, 2**40 + 3, 2.0, 256)), S.last("k").parameters
own, own_errors, own_wide = launches(), refused(), wide()
assert len(set(own_errors)) > 1 and None not in own_errors, own_errors
with silo.accelerate():
    assert launches() == own
    served, first = kernel().launches
    assert launches() == own and kernel().launches == (served + 10, first), (served, first, kernel().launches)
    assert served + first == 10 and first <= 6, (served, first)
    assert refused() == own_errors and kernel().launches[1] == first, kernel().reasons
    assert wide() == own_wide and wide() == own_wide
    first = kernel().launches[1]
    runner = one[(4, 1, 1)]
    DRIVER[0].stream = 64
    runner(x, y, z, 1000, 2.0, 256)
    assert S.last("k").stream == 64 and kernel().launches[1] == first
    DRIVER[0].stream = 0
    one[(4, 1, 1)](x, y, z, 1000, 2.0, 256, stream=128)
    assert S.last("k").stream == 128 and kernel().launches[1] == first + 1
    assert kernel().reasons["a stream that is given, or arguments by name"] == 1
    # Calls of the function itself choose by its arguments.
    k[(4,)](x.at(8), y, z, 17, 2.0, BLOCK=256), k[(4,)](x.at(8), y, z, 17, 2.0, BLOCK=256)
    assert S.last("k").parameters[0] == own[2][3][0] and kernel().launches[1] == first + 2
assert dict(vars(kind)) == before and set(vars(one)) >= flags and "_silo_kernel" not in vars(one)
count = S.last("k").count
runner(x, y, z, 1000, 2.0, 256)
assert S.last("k").count == count + 1
"""
    )


def test_hooks_see_launches_by_hand_and_a_compiled_kernel_ends_with_its_last_reference():
    program(
        HOOKS
        + """
import weakref
one = measured.warmup(x, z, 48, grid=(1,))
def run_by_hand():
    del log[:], made[:]
    start = counted()
    one[(2, 1, 1)](x, z, 48, 64)
    return [(of[0], of[1] - start, *of[2:]) for of in log]
run_by_hand()
put(); own = run_by_hand(); take()
assert len(own) == 3, own
with silo.accelerate():
    run_by_hand(), run_by_hand()
    put()
    before = kernel(measured).launches
    assert run_by_hand() == own
    assert kernel(measured).launches == (before[0] + 1, before[1])
    take()
    for caches in measured.device_caches.values():
        caches[0].clear()
    gone = weakref.ref(one)
    del one
    assert gone() is None
    two = measured.warmup(x, z, 48, grid=(1,))
    two[(2, 1, 1)](x, z, 48, 64)
    assert S.last("measured").grid == (2, 1, 1)
"""
    )


GLUON = """
from triton.experimental import gluon
import triton.experimental.gluon.language as gl

@gluon.jit
def scale(a, out, n, factor, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(out + at, gl.load(a + at, mask=at < n) * factor, mask=at < n)
"""


def test_gluon_functions_are_launched_by_silo():
    program(
        GLUON
        + """
def run():
    seen = []
    for n in (64, 1, 65, 64):
        for a in (x, x.at(4)):
            scale[(2,)](a, z, n, 1.5, BLOCK=128, num_warps=4)
            seen.append((S.last("scale").grid, S.last("scale").block, S.last("scale").parameters))
    return seen
own = run()
with silo.accelerate():
    assert run() == own
    first = kernel(scale).launches
    assert run() == own and kernel(scale).launches == (first[0] + 8, first[1]) and sum(first) == 8, first
    assert not kernel(scale).refusals
    (variant, *_) = kernel(scale).variants
    assert variant.signature is not None and variant.program.entry == "scale"
"""
    )


GLUON_FORMS = """
import gluon_kernels
from gluon_kernels import gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as Own

class TensorDescriptor(Own):
    def __post_init__(self):
        "Without the checks that look at a tensor."

add, move = gluon_kernels.add, gluon_kernels.move
half = array(1 << 20, torch.float16), array(1 << 20, torch.float16)

def descriptors(width):
    layout = gl.NVMMASharedLayout(width, 16, rank=2)
    return [TensorDescriptor(one, [128, 64], [64, 1], [64, 64], layout) for one in half]

def run():
    seen = []
    for size in (1, 2, 1, 1, 2):
        add[(2,)](x, y, z, 500, 128 * size, gl.BlockedLayout([size], [32], [4], [0]))
        seen.append((S.last("add").grid, S.last("add").block, S.last("add").parameters))
    for width in (128, 64, 128, 64):
        move[(2,)](*descriptors(width))
        seen.append((S.last("move").grid, S.last("move").shared, S.last("move").parameters))
    return seen
"""


def test_layouts_and_descriptors_of_gluon_are_launched_by_silo():
    program(
        GLUON_FORMS
        + """
own = run()
with silo.accelerate():
    assert run() == own
    first = kernel(add).launches, kernel(move).launches
    assert run() == own
    assert kernel(add).launches == (first[0][0] + 5, first[0][1]), kernel(add).refusals
    assert kernel(move).launches == (first[1][0] + 4, first[1][1]), kernel(move).refusals
    assert not kernel(add).refusals and not kernel(move).refusals
    assert len(kernel(add).variants) == 2 and len(kernel(move).variants) == 2
    assert all(one.signature is not None for one in (*kernel(add).variants, *kernel(move).variants))
"""
    )


def test_gluon_kernels_are_recorded_and_served(tmp_path):
    path = tmp_path / "gluon.silo"
    tmp_path.chmod(0o700)
    code = (
        GLUON_FORMS
        + """
from silo.kinds.triton.programs.records.capture_activation import record, replay
acceleration = silo.accelerate()
end = record(sys.argv[2]) if sys.argv[1] == "record" else replay(sys.argv[2], frozen=True)
run()
end()
one, two = kernel(add), kernel(move)
print(sys.argv[1], len(one.variants), len(two.variants), one.variant_count, two.variant_count)
acceleration.stop()
"""
    )
    assert "record 2 2 2 2" in run(HEAD + code, "record", str(path))
    assert {"add", "move"} <= set(silo.load(path))
    served = run(HEAD + code, "serve", str(path))
    assert "serve 0 2 2 2" in served, served  # frozen: Triton takes the code of move from the file


def test_dictionaries_of_options_are_compared_by_value():
    program("""
import copy, os
from pathlib import Path
libraries = {"libdevice": str(next(Path(triton.__file__).parent.glob("backends/nvidia/lib/libdevice*.bc")))}
def run(libs, **more):
    k[(4,)](x, y, z, 1000, 2.0, BLOCK=256, extern_libs=libs, **more)
    return S.last("k").parameters
own = run(libraries)
before = len(k.device_caches[0][0])
with silo.accelerate():
    for _ in range(2):
        assert run(libraries) == own and run(dict(libraries)) == own
    assert kernel().launches == (3, 1) and not kernel().reasons, (kernel().launches, kernel().reasons)
    # Changed in place: it is other code to Triton.
    other = dict(libraries)
    run(other)
    other["libdevice2"] = libraries["libdevice"]
    run(other)
    assert kernel().launches == (4, 2) and len(k.device_caches[0][0]) == before + 1
    run(other), run(libraries)
    assert kernel().launches == (6, 2) and len(k.device_caches[0][0]) == before + 1
    nested = {"libdevice": libraries["libdevice"], "more": {"a": 1}}
    try:
        run(nested)
    except Exception:
        pass
    assert kernel().launches[0] == 6
""")


def test_a_program_as_tritons_tutorials_are_runs_on_the_cpu(tmp_path):
    report = tmp_path / "report.jsonl"
    file = Path(__file__).parents[2] / "samples" / "descriptor_program.py"
    done = subprocess.run(
        [sys.executable, "-m", "silo", "exec", "--report", str(report), str(file), "20"],
        env={
            **os.environ,
            "TRITON_CACHE_DIR": str(tmp_path / "cache"),
            "SILO_HOME": str(tmp_path),
            "SILO_TRITON": "cpu",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert [name for name, *_ in said["seen"]] == ["by_host 256x128", "by_device", "halve"] * 10
    assert said["left"] == [name for name, *_ in said["seen"]]
    (line,) = [json.loads(one) for one in report.read_text().splitlines()]
    for one in line["kernels"]:
        assert one["launches"] / (one["launches"] + one["own_launches"]) >= 0.95, line
        assert not one["refusals"]
        assert not one["reasons"]
