"""Copies of Buffers and captured work of torch among the launches of a plan, on the stub driver."""

import itertools
import subprocess
import textwrap
from pathlib import Path

import pytest

import graph_plans
from samples import gpu_stub
from silo.launch import plan_copies

COPIES = """
import ctypes, random, struct
import numpy as np
import gpu_stub, plan_mix, silo
from gpu_stub import stub
from silo.errors import ArgumentError
from silo.launch import plan_copies
from silo.launch.plan_copies import BLOCK_BYTES

text = plan_copies.kernel_ptx
sizes = {"copy": "8,8,8", "fill": "8,4,8"}
plan_copies.kernel_ptx = lambda what: f"// stub: params={sizes[what]}" + chr(10) + text(what)

def copied(launch):
    to, data, size = struct.unpack("<3Q", b"".join(launch.parameters))
    assert launch.grid == (-(-size // BLOCK_BYTES), 1, 1) and launch.block == (256, 1, 1)
    ctypes.memmove(to, data, size)

def filled(launch):
    to, byte, size = struct.unpack("<QiQ", b"".join(launch.parameters))
    assert launch.grid == (-(-size // BLOCK_BYTES), 1, 1)
    ctypes.memset(to, byte, size)

stub.run("silo_buffer_copy", copied)
stub.run("silo_buffer_fill", filled)
for name in plan_mix.FACTORS:
    stub.run(name, lambda launch, name=name: plan_mix.run_on_host(name, launch.grid, launch.parameters))
mix, _ = plan_mix.declared()

def step(x, kept, out, n):
    kept.copy_from(x)
    x.fill(3)
    mix(x, kept, kept, kept, out, n, 2, 1)
    out.copy_from(kept) if n > 5000 else None

def buffers(n):
    made = [silo.Buffer(n, "int32", device="cuda") for _ in range(3)]
    for one in made:
        one.copy_from(np.arange(n, dtype=np.int32))
    return made

plan = silo.plan(step, *buffers(1000), 1000)
assert plan.report().kernels == ("Buffer.copy", "Buffer.fill", "mix3"), plan.report()
for n in (1000, 33, 4096, 1, 6000):
    mine, theirs = buffers(n), buffers(n)
    plan(*mine, n)
    step(*theirs, n)
    for one, other in zip(mine, theirs, strict=True):
        assert (one.numpy() == other.numpy()).all(), n
assert plan.replays == 4 and plan.report().forms[0].way == "device", str(plan.report())
assert mine[0].numpy()[0] == 0x03030303

x, kept, out = buffers(64)
host, short = silo.Buffer(64, "int32"), silo.Buffer(32, "int32", device="cuda")

def refused(words, work):
    try:
        with silo.planning():
            work()
    except ArgumentError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)

refused("copies of a whole Buffer", lambda: x.copy_from(bytes(256)))
refused("copies of a whole Buffer", lambda: x.copy_from(kept, at=0))
refused("not from one to the other", lambda: x.copy_from(host))
refused("not from one to the other", lambda: host.copy_from(x))
refused("Buffer.copy) is on a stream that does not wait", lambda: x.copy_from(kept, stream=64))
refused("Buffer.fill) is on a stream that does not wait", lambda: x.fill(1, 64))
refused("as many bytes", lambda: x.copy_from(short))
refused("does not record copy_to() of a Buffer", lambda: x.numpy())
with silo.planning(x=x) as block:
    out.copy_from(x)
block(x=kept)
assert (out.numpy() == kept.numpy()).all()
"""


def test_copies_and_fills_of_buffers_are_nodes(tmp_path):
    gpu_stub.run(COPIES, SILO_HOME=str(tmp_path))


def test_the_kernels_that_copy_and_fill_are_code_for_every_gpu(tmp_path):
    nvidia = pytest.importorskip("triton.backends.nvidia")
    assembler = Path(nvidia.__path__[0], "bin", "ptxas")
    if not assembler.exists():
        pytest.skip("this Triton has no ptxas")
    text = tmp_path / "code.ptx"
    for what, arch in itertools.product(("copy", "fill"), ("sm_75", "sm_90", "sm_120")):
        text.write_text(plan_copies.kernel_ptx(what))
        subprocess.run([assembler, "--gpu-name", arch, text, "-o", tmp_path / "code"], check=True)


TORCH = """
import ctypes, os, random
import numpy as np
import torch
import gpu_stub, graph_plans, plan_mix, silo
from gpu_stub import stub
from silo.errors import ArgumentError
from silo.launch import plan_torch

for name in plan_mix.FACTORS:
    stub.run(name, lambda launch, name=name: plan_mix.run_on_host(name, launch.grid, launch.parameters))
mix, other = plan_mix.declared()
device = graph_plans.Device(graph_plans.trapping(), "cuda", os.environ["SILO_TEST_STUB"])
marker = device.kernel(gpu_stub.text("captured", params="8"), "captured", (8,))
calls = []
stub.run("captured", lambda launch: calls[int.from_bytes(launch.parameters[0], "little")]())

class Capture(plan_torch.CudaCapture):
    # In the place of CUDA's: the stub's memory is the host's, and a graph's one kernel runs the operation.
    device_type = "cpu"
    stream = 0

    pools = []

    def __init__(self, torch, pool):
        Capture.pools.append(pool)

    def allocate(self, call, device_index, stream):
        return call(), "an owner of the pool"

    drawn = [0]

    @staticmethod
    def missing(torch):
        return ""

    @staticmethod
    def offsets(torch):
        return tuple(Capture.drawn)

    def current(self, device):
        return Capture.stream

    def take(self, call, device_index, stream):
        free = dict(zip(call.__code__.co_freevars, (cell.cell_contents for cell in call.__closure__), strict=True))
        inputs = [one for one in free["args"] if isinstance(one, torch.Tensor)]
        kept = [one.clone() for one in inputs]
        result = call()
        for one, before in zip(inputs, kept, strict=True):
            one.copy_(before)  # a capture computes nothing
        parameter = len(calls).to_bytes(8, "little")
        calls.append(call)
        made = device.graph(marker, graph_plans.Call((1, 1, 1), (parameter,)))
        return result, len(calls) - 1, device.graph_handle(made)

    def run(self, made, device):
        calls[made]()

plan_torch._capture = Capture

def tensor(buffer):
    return torch.frombuffer((ctypes.c_int32 * 2000).from_address(buffer.address), dtype=torch.int32)

def buffers(seed=1):
    made = [silo.Buffer(2000, "int32", device="cuda") for _ in range(5)]
    for one in made:
        tensor(one).copy_(torch.from_numpy(np.random.default_rng(seed).integers(-99, 99, 2000, np.int32)))
    return made

def raises(words, call, *arguments):
    try:
        call(*arguments)
    except ArgumentError as error:
        assert words in str(error), error
    else:
        raise AssertionError("nothing was raised")
"""


def with_torch(code: str) -> None:
    pytest.importorskip("torch")
    given = textwrap.dedent(TORCH) + textwrap.dedent(code) + 'print("ended")'
    assert graph_plans.on_stub(gpu_stub.run, given).endswith("ended\n")


def test_work_of_torch_runs_between_the_launches_of_a_replay():
    with_torch("""
    x, y, z, kept, out = buffers()
    xx, yy, zz, same, result = buffers()
    weight = torch.arange(2000, dtype=torch.int32) % 7

    views = [tensor(kept)]

    def step(kept, add, x, y, z, out, n, v):
        view = views[0]
        mix(x, y, z, y, kept, n, v, 1)
        view.mul_(3)
        view.add_(weight)
        other(kept, y, z, x, out, n, v, 2)
        view.sub_(add)
        mix(x, y, z, y, kept, n, v, 3)

    plan = silo.plan(step, kept, 5, x, y, z, out, 2000, 4)
    views[0] = tensor(same)
    step(same, 5, xx, yy, zz, result, 2000, 4)
    report = plan.report()
    assert report.kernels == ("mix3", "torch.mul_", "torch.add_", "mix5", "torch.sub_", "mix3"), report.kernels
    assert report.memory == {"kept": "torch.mul_"}, report.memory
    assert len(report.tensors) == 1 and "int32[2000]" in str(report), str(report)
    assert report.fixed["add"], report.fixed
    assert [form.way for form in report.forms] == ["device"] and report.forms[0].launches == 6, str(report)
    dice = random.Random(5)
    mine, theirs = [x, y, z, out], [xx, yy, zz, result]
    for replay in range(40):
        n, v, order = dice.choice((0, 1, 640, dice.randrange(2000))), replay, dice.sample(range(4), 4)
        weight += 1  # the plan reads the tensor that it holds
        views[0] = tensor(kept)
        plan(kept, 5, *(mine[index] for index in order), n, v)
        views[0] = tensor(same)
        step(same, 5, *(theirs[index] for index in order), n, v)
        for one, other_one in zip((kept, *mine), (same, *theirs), strict=True):
            assert torch.equal(tensor(one), tensor(other_one)), replay
    assert plan.replays == 40, str(plan.report())
    raises("kept cannot be another array than the recorded one: torch.mul_", plan, same, 5, x, y, z, out, 9, 9)
    views[0] = tensor(kept)
    plan(kept, 6, x, y, z, out, 9, 9)  # a number that torch was given: the function runs, and is captured once more
    views[0] = tensor(same)
    step(same, 6, xx, yy, zz, result, 9, 9)
    plan(kept, 6, x, y, z, out, 9, 9)
    views[0] = tensor(same)
    step(same, 6, xx, yy, zz, result, 9, 9)
    assert torch.equal(tensor(kept), tensor(same)) and torch.equal(tensor(out), tensor(result))
    assert plan.replays == 41 and len(plan.report().forms) == 2
    """)


def test_work_of_torch_in_a_block_is_done_once_and_replayed():
    with_torch("""
    x, y, z, kept, out = buffers()
    same = tensor(kept).clone()
    view = tensor(kept)
    with silo.planning(x=x, out=out) as plan:
        mix(x, y, z, y, out, 2000, 4, 1)
        view.mul_(3)
        mix(x, kept, z, y, out, 2000, 4, 1)
    assert torch.equal(view, same * 3)
    plan(x=y, out=z)
    assert torch.equal(view, same * 9)
    assert plan.report().kernels == ("mix3", "torch.mul_", "mix3")
    with silo.planning(kept=kept) as plan:
        mix(x, y, z, y, out, 2000, 4, 1)
        view.mul_(3)
    raises("kept cannot be another array than the recorded one", lambda: plan(kept=x))
    """)


def test_work_of_torch_that_cannot_be_captured_says_why():
    with_torch("""
    x, y, z, kept, out = buffers()
    view = tensor(kept)
    before = view.clone()

    def step(then):
        def function(x):
            mix(x, y, z, y, out, 2000, 4, 1)
            then()
        return function

    def random_numbers():
        view.random_(5)

    def value():
        view[0].item()

    def other_stream():
        Capture.stream = 64
        try:
            view.abs_()
        finally:
            Capture.stream = 0

    turns = []

    def other_work():
        turns.append(1)
        view.mul_(2) if len(turns) % 2 else view.add_(2)

    def other_tensor():
        turns.append(1)
        torch.abs_(view if len(turns) % 2 else tensor(y))

    plans = [
        ("torch.random_ runs between launches, which a plan does not record (it draws random numbers", random_numbers),
        ("(it gives the program a value that the GPU has computed)", value),
        ("node 2 (torch.abs_) is on a stream that does not wait for the one that is current", other_stream),
        ("torch did other work the second time", other_work),
        ("or on other tensors", other_tensor),
    ]
    for words, then in plans:
        raises(words, silo.plan, step(then), x)
    def broken(self, call, device, stream):
        raise RuntimeError("operation not permitted when stream is capturing" + chr(10) + "more")
    Capture.take, kept_take = broken, Capture.take
    words = "(it could not be captured: operation not permitted when stream is capturing)"
    raises(words, silo.plan, step(view.abs_), x)
    Capture.take = kept_take
    Capture.missing = staticmethod(lambda torch: "this torch has no CUDA")
    raises("(this torch has no CUDA)", silo.plan, step(view.abs_), x)
    """)


def test_work_of_torch_on_two_streams_is_beside_each_other():
    with_torch("""
    import fake_streams
    for replaced in fake_streams.replacements():
        setattr(*replaced)
    main, side = fake_streams.MAIN, fake_streams.Stream(64)
    x, y, z, kept, out = buffers()
    view, other_view = tensor(kept), tensor(out)

    class On:
        def __enter__(self):
            Capture.stream = 64

        def __exit__(self, *_):
            Capture.stream = 0

    def step(x):
        mix(x, y, z, y, y, 2000, 4, 1)
        side.wait_stream(main)
        with On():
            view.mul_(3)
            view.add_(1)
        other_view.mul_(5)
        main.wait_stream(side)
        mix(x, z, kept, out, z, 2000, 4, 1)

    plan = silo.plan(step, x)
    edges = [line.split("after=")[1] for line in stub.graph()]
    assert edges == ["", "0", "1", "2", "1", "3,4"], stub.graph()
    assert plan.report().kernels == ("mix3", "torch.mul_", "torch.add_", "torch.mul_", "mix3")
    assert "5 launches on 2 streams" in str(plan.report())
    plan(x)
    wanted = [tensor(one).clone() for one in (x, y, z, kept, out)]
    for one, numbers in zip((x, y, z, kept, out), buffers(), strict=True):
        tensor(one).copy_(tensor(numbers))
    step(x)
    step(x)
    assert plan.replays == 1
    for one, numbers in zip((x, y, z, kept, out), wanted, strict=True):
        assert torch.equal(tensor(one), numbers)
    """)


def test_plans_share_a_pool_and_list_what_they_hold():
    with_torch("""
    x, y, z, kept, out = buffers()
    kept_view, made, works = tensor(kept), [], []

    class Work(plan_torch.TorchWork):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            works.append(self)

    plan_torch.TorchWork = Work

    def held():  # of the recording that the form is made of
        addresses = {one.data_ptr() for one in works[0].keeps if isinstance(one, torch.Tensor)}
        return [one in addresses for one in made[2:4]]

    def step(x, out):
        between = torch.empty(2000, dtype=torch.int32)
        twice = kept_view * 2
        made.extend((between.data_ptr(), twice.data_ptr()))
        torch.add(kept_view, twice, out=between)
        kept_view.add_(between)
        mix(x, y, z, kept, out, 2000, 4, 1)

    own = silo.plan(step, x, out)
    assert Capture.pools == [None, None]
    report = own.report()
    assert report.pool is None and report.temporaries == 8000, report
    assert "8,000 bytes of temporaries lie in a pool of its own" in str(report)
    assert len(report.arrays) == 3 and set(report.arrays.values()) == {"mix3"}, report.arrays
    assert "an array stays: int32[2000] at" in str(report)
    assert held() == [True, False]  # the memory of torch.empty

    class Graph:
        def pool(self):
            return (0, 7)

    made.clear()
    works.clear()
    Capture.pools.clear()
    shared = [silo.plan(step, x, out, pool=pool) for pool in ((0, 7), Graph())]
    assert Capture.pools == [(0, 7)] * 4
    assert held() == [False, False]  # the pool has them, for other plans too
    assert works[0].keeps.count("an owner of the pool") == 1 and works[0].is_shared(made[2] + 7999)
    assert not works[0].is_shared(kept_view.data_ptr())
    report = shared[1].report()
    assert report.pool == (0, 7) and report.temporaries == 16000, report
    assert "16,000 bytes of temporaries lie in the pool (0, 7), which other plans may use" in str(report)
    assert len(report.arrays) == 3 and len(report.tensors) == 1, report
    for turn in range(4):
        shared[turn % 2](x, out)
    assert [one.replays for one in shared] == [2, 2]
    with silo.planning(pool=(0, 8)) as block:
        between = torch.empty(2000, dtype=torch.int32)
        mix(x, y, z, y, out, 2000, 4, 1)
    assert block.report().pool == (0, 8) and Capture.pools[-1] == (0, 8)

    def with_a_pool(x, pool):
        mix(x, y, z, y, out, 2000, pool, 1)

    raises("give that one by position", lambda: silo.plan(with_a_pool, x, pool=4))
    raises("pool= takes torch.cuda.graph_pool_handle()", lambda: silo.plan(step, x, out, pool=4))
    raises("pool= takes torch.cuda.graph_pool_handle()", lambda: silo.planning(pool="4").__enter__())
    assert silo.plan(with_a_pool, x, 4).names == ("x", "pool")
    assert silo.plan(with_a_pool, x, 4, pool=(0, 7)).report().pool == (0, 7)
    """)


def test_random_numbers_are_refused_by_name_and_attention_without_dropout_is_not():
    with_torch("""
    x, y, z, kept, out = buffers()
    view = tensor(kept)

    @torch.library.custom_op("silo_test::noisy", mutates_args=("to",))
    def noisy(to: torch.Tensor) -> None:
        Capture.drawn[0] += 4  # as a library's kernel takes numbers from torch's generator
        to.add_(1)

    @torch.library.custom_op("silo_test::quiet", mutates_args=("to",))
    def quiet(to: torch.Tensor) -> None:
        to.add_(1)

    def step(then):
        def function(x):
            mix(x, y, z, y, out, 2000, 4, 1)
            then()
        return function

    refused = {
        "torch.random_": lambda: view.random_(5),
        "torch.bernoulli_": lambda: view.bernoulli_(0.5),
        "torch.normal_": lambda: torch.empty(9).normal_(),
        "torch.rand": lambda: torch.rand(9),
        "torch.randint": lambda: torch.randint(0, 9, (9,)),
        "torch.randperm": lambda: torch.randperm(9),
        "torch.multinomial": lambda: torch.multinomial(torch.ones(9), 3),
        "torch.native_dropout": lambda: torch.nn.functional.dropout(torch.ones(9), 0.5),
        "torch.exponential_": lambda: torch.empty(9).exponential_(),
        "torch._scaled_dot_product": lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5),
    }
    q = torch.ones(1, 1, 4, 4)
    for name, then in refused.items():
        try:
            silo.plan(step(then), x)
        except ArgumentError as error:
            known = (name, "torch.bernoulli")  # dropout draws by it where it is decomposed
            assert any(one in str(error) for one in known), (name, error)
            assert "it draws random numbers, which would be the same in each replay" in str(error), error
        else:
            raise AssertionError(name)
    generator = torch.Generator()
    raises("torch.rand", silo.plan, step(lambda: torch.rand(9, generator=generator)), x)
    raises("silo_test::noisy runs between launches", silo.plan, step(lambda: noisy(view)), x)
    raises("torch's generator moved on", silo.plan, step(lambda: noisy(view)), x)
    assert silo.plan(step(lambda: quiet(view)), x).report().kernels == ("mix3", "silo_test::quiet")

    def block():
        with silo.planning(x=x):
            mix(x, y, z, y, out, 2000, 4, 1)
            noisy(view)

    raises("it draws random numbers, which would be the same in each replay", block)
    attention = lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q)
    assert "torch._scaled_dot_product" in silo.plan(step(attention), x).report().kernels[1]
    seeds = iter(range(100))
    def launch_with_a_seed(x):
        mix(x, y, z, y, out, 2000, next(seeds), 1)
    raises("is neither an argument of the plan nor computed from one", silo.plan, launch_with_a_seed, x)
    """)
