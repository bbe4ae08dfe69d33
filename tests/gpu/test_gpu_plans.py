"""Plans as graphs on a real NVIDIA GPU: random replacements against launches one by one, each way of updating."""

import os
import random

import numpy as np
import pytest

import graph_plans
import grown
import plan_mix
import silo
import stream_programs
from silo.errors import ArgumentError

REPLAYS = int(os.environ.get("SILO_TEST_REPLAYS", "10000"))


@pytest.fixture(scope="module")
def device():
    try:
        return graph_plans.Device(graph_plans.trapping())
    except graph_plans.PlanError as error:
        pytest.skip(str(error))


def test_the_driver_updates_nodes_on_the_device(device):
    plan = device.plan(plan_mix.kernels(device, 4))
    way, reason = plan.explain()
    plan.close()
    assert way == "device", reason


@pytest.mark.parametrize("options", [{}, {"slots": 1}, {"everything": 1}, {"wanted": graph_plans.HOST}], ids=str)
@pytest.mark.parametrize("nodes", [1, 12, 50, 300])
def test_random_replacements_give_what_separate_launches_give(device, options, nodes):
    replays = REPLAYS * 12 // max(nodes, 12)
    wrong, plan = plan_mix.compare(device, replays, seed=nodes, nodes=nodes, **options)
    way, reason = plan.explain()
    counts = plan.counts()
    plan.close()
    assert way == ("host" if "wanted" in options else "device"), reason
    assert wrong == 0
    assert counts.replays == replays


def test_replays_in_which_nothing_changes_keep_what_the_nodes_have(device):
    """The parameters that kernels gave to nodes stay through launches, other graphs and other streams."""
    stream, other = device.stream(), device.stream()
    wrong, plan = plan_mix.compare(device, 40, seed=5, nodes=20, checks=1)
    assert wrong == 0
    updates = plan.counts().updates
    for replay in range(100):
        plan.launch(stream=(stream, other, None)[replay % 3])
    assert plan.counts().updates == updates
    device.wait(stream)
    device.wait(other)
    plan.close()


def test_a_plan_that_is_closed_while_its_replays_are_queued_ends_well(device):
    stream = device.stream()
    for seed in range(20):
        _, plan = plan_mix.compare(device, 3, seed=seed, nodes=50)
        for _ in range(30):
            plan.launch(stream=stream)
        plan.close()
    device.wait(stream)


def test_a_plan_from_python_computes_what_its_calls_compute():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    kernels = plan_mix.declared()

    def step(a, b, c, out, n, v):
        for index in range(20):
            kernels[index % 2](a, b, c, (b, c)[index % 2], out, n, v, index)

    dice = random.Random(11)
    torch.manual_seed(11)
    base = torch.randint(-1000, 1000, (6, 5000), dtype=torch.int32, device="cuda")
    plan = silo.plan(step, base[0], base[1], base[2], base[3], 5000, 3)
    for _ in range(REPLAYS // 10):
        rows, n, start = dice.sample(range(6), 4), dice.choice((0, 1, 640, dice.randrange(4900))), dice.randrange(64)
        mine, theirs = base.clone(), base.clone()
        a, b, c, out = rows
        plan(mine[a, start:], mine[b, start:], mine[c, start:], mine[out, start:], n, start)
        step(theirs[a, start:], theirs[b, start:], theirs[c, start:], theirs[out, start:], n, start)
        assert torch.equal(mine, theirs), (rows, n, start, str(plan.report()))
        base[rows[3]] = mine[rows[3]] % 1000
    assert any(form.way == "device" for form in plan.report().forms), str(plan.report())


@pytest.fixture(scope="module")
def torch():
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    if not hasattr(found.cuda.CUDAGraph, "raw_cuda_graph"):
        pytest.skip("this torch does not hand out the graphs that it captures")
    return found


N = 5000


def ints(torch, count, seed):
    made = torch.Generator(device="cpu").manual_seed(seed)
    return [torch.randint(-1000, 1000, (N,), dtype=torch.int32, generator=made).cuda() for _ in range(count)]


def test_work_of_torch_runs_between_the_launches_of_a_replay(torch):
    mix, other = plan_mix.declared()
    (weight,) = ints(torch, 1, seed=9)

    def step(kept, a, b, c, out, n, v):
        mix(a, b, c, b, kept, n, v, 1)
        kept.mul_(3)
        between = kept + weight  # new memory, of the plan's pool
        other(between, b, c, a, out, n, v, 2)
        kept.sub_(5).clamp_(-100, 100)
        mix(a, b, c, between, kept, n, v, 3)
        return between

    mine, theirs = ints(torch, 5, seed=4), ints(torch, 5, seed=4)
    plan = silo.plan(step, *mine, N, 4)
    step(*[*theirs, N, 4])
    torch.cuda.synchronize()
    for one, another in zip(mine, theirs, strict=True):
        assert torch.equal(one, another)
    report = plan.report()
    assert [name for name in report.kernels if name.startswith("torch.")][:2] == ["torch.mul_", "torch.add"], report
    assert report.memory == {"kept": "torch.mul_"}, str(report)
    assert len(report.tensors) == 1, str(report)
    assert report.forms[0].way in ("device", "host"), str(report)
    dice = random.Random(5)
    for replay in range(min(REPLAYS, 500)):
        order, n = dice.sample(range(1, 5), 4), dice.choice((0, 1, 640, dice.randrange(N)))
        weight += 1  # the plan reads the tensor that it holds
        between = plan(mine[0], *(mine[index] for index in order), n, replay % 50)
        expected = step(*[theirs[0], *(theirs[index] for index in order), n, replay % 50])
        if replay % 20 == 0:
            assert torch.equal(between, expected), (replay, str(report))
            for one, another in zip(mine, theirs, strict=True):
                assert torch.equal(one, another), (replay, str(report))
    assert plan.replays == min(REPLAYS, 500), str(plan.report())
    with pytest.raises(ArgumentError, match="kept cannot be another array than the recorded one"):
        plan(theirs[0], *mine[1:], N, 4)
    print(plan.report())


def test_floating_point_work_of_torch_and_a_product_are_captured(torch):
    mix, _ = plan_mix.declared()
    matrix = torch.randn(64, 64, device="cuda")
    a, b, c, d, out = ints(torch, 5, seed=6)
    hidden, result = torch.randn(8, 64, device="cuda"), torch.zeros(8, 64, device="cuda")

    def step(a, b, c, d, out, n):
        mix(a, b, c, d, out, n, 1, 1)
        torch.mm(torch.nn.functional.silu(hidden), matrix, out=result)
        mix(a, b, c, d, out, n, 1, 2)

    plan = silo.plan(step, a, b, c, d, out, N)
    for _ in range(20):
        hidden.normal_()
        result.zero_()
        plan(a, b, c, d, out, N - 1)
        torch.testing.assert_close(result, torch.nn.functional.silu(hidden) @ matrix)
    assert len(plan.report().tensors) == 3, str(plan.report())


def test_work_of_torch_in_a_block_is_done_once_and_replayed(torch):
    mix, _ = plan_mix.declared()
    a, b, c, d, out = ints(torch, 5, seed=7)
    kept = torch.ones(N, dtype=torch.int32, device="cuda")
    with silo.planning(a=a, out=out) as plan:
        mix(a, b, c, d, out, N, 1, 1)
        kept.mul_(2)
        mix(a, b, c, kept, out, N, 1, 1)
    assert kept.unique().tolist() == [2]
    plan(a=b, out=d)
    plan(a=b, out=d)
    assert kept.unique().tolist() == [8]


def test_work_of_torch_that_cannot_be_captured_is_refused_and_the_process_goes_on(torch):
    mix, _ = plan_mix.declared()
    a, b, c, d, out = ints(torch, 5, seed=8)
    side = torch.cuda.Stream()
    kept = torch.ones(N, dtype=torch.int32, device="cuda")
    on_host = torch.ones(N, dtype=torch.int32)

    def on_side():
        with torch.cuda.stream(side):
            kept.abs_()

    refused = {
        "draws random numbers": lambda: kept.random_(5),
        "gives the program a value": kept[0].item,
        "uses memory of cpu and cuda": lambda: kept.copy_(on_host),
        "sizes that the GPU has computed": kept.nonzero,
        "is on a stream that does not wait": on_side,
    }
    for words, work in refused.items():

        def step(a, work=work):
            mix(a, b, c, d, out, N, 1, 1)
            work()

        with pytest.raises(ArgumentError, match=words):
            silo.plan(step, a)
    torch.cuda.synchronize()
    plan = silo.plan(lambda a: mix(a, b, c, d, out, N, 1, 1), a)
    plan(b)
    torch.cuda.synchronize()


def test_replays_follow_torchs_current_stream(torch):
    mix, _ = plan_mix.declared()
    mine = ints(torch, 5, seed=3)
    kept = torch.ones(N, dtype=torch.int32, device="cuda")

    def step(a, b, c, d, out, n):
        mix(a, b, c, d, out, n, 1, 1)
        kept.add_(1)
        mix(a, b, kept, d, out, n, 1, 1)

    plan = silo.plan(step, *mine, N)
    kept.fill_(1)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            plan(*mine, N - 1)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    assert kept.unique().tolist() == [6]
    events = []
    with torch.cuda.stream(side), silo.launch_hook(events.append):
        plan(*mine, N)
    assert [(event.stream, event.parts) for event in events] == [(side.cuda_stream, ("mix3", "torch.add_", "mix3"))]


def test_random_programs_on_several_streams_compute_what_they_compute_launch_by_launch(torch):
    """Each node writes an array of its own from arrays that nodes before it wrote, so an edge too few shows."""
    mix, other = plan_mix.declared()
    dice, planned, beside = random.Random(4), 0, 0
    sides = {key: torch.cuda.Stream() for key in (64, 128, 192)}
    long_ = 2_000_000  # elements: kernels that overlap if nothing keeps them apart
    while planned < 12:
        program = stream_programs.draw(dice)
        wanted, nodes = stream_programs.reference(program), stream_programs.recorded(program)[0]
        if wanted is None or len(nodes) < 3:
            continue
        arrays = [torch.zeros(long_, dtype=torch.int32, device="cuda") for _ in range(len(nodes) + 1)]
        sources = [dice.sample(sorted(done), min(len(done), 3)) for done in wanted]
        with_torch = [dice.random() < 0.3 for _ in nodes]

        def step(n, v, program=program, arrays=arrays, sources=sources, with_torch=with_torch):
            main, events = torch.cuda.current_stream(), {}
            for kind, number, (_, key) in program:
                stream = sides[key] if key else main
                if kind != "launch":
                    event = events.setdefault(number, torch.cuda.Event())
                    event.record(stream) if kind == "record" else event.wait(stream)
                    continue
                read = [arrays[one + 1] for one in sources[number]] + [arrays[0]] * 4
                with torch.cuda.stream(stream):
                    (mix if number % 2 else other)(*read[:4], arrays[number + 1], n, v, number)
                    if with_torch[number]:
                        arrays[number + 1].add_(read[0])

        def result(call, arrays=arrays):
            for number, one in enumerate(arrays):
                one.fill_(number)
            for turn in range(4):
                call(long_ - turn, turn + 2)
            torch.cuda.synchronize()
            return [one.clone() for one in arrays]

        plan = silo.plan(step, long_, 2)
        planned += 1
        beside += plan.report().forms[0].streams > 1
        assert plan.report().forms[0].way == "device", str(plan.report())
        ours, theirs = result(plan), result(step)
        assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True)), program
        assert plan.replays == 4
    assert beside > 5


def test_plans_that_share_a_pool_use_the_same_memory_and_compute_what_their_functions_do(torch):
    mix, other = plan_mix.declared()
    size = 8 << 20  # elements: 32 MiB each
    a, b, c, d, out = (torch.ones(size, dtype=torch.int32, device="cuda") * index for index in range(5))

    def step(n, factor):
        between = torch.empty(size, dtype=torch.int32, device="cuda")
        between.fill_(1)
        mix(a, b, c, d, between, n, factor, 1)
        twice = between * 2
        other(twice, b, between, d, out, n, factor, 2)

    def grown(**options):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        plans = [silo.plan(step, size, 3, **options) for _ in range(6)]
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved() - before, plans

    own, plans = grown()
    shared, sharing = grown(pool=torch.cuda.graph_pool_handle())
    assert shared < own * 0.6, (shared, own)
    assert len({plan.report().pool for plan in sharing}) == 1
    assert sharing[0].report().temporaries == 2 * 4 * size
    for turn, plan in enumerate([*plans, *sharing] * 2):
        found = []
        for call in (plan, step):
            out.fill_(5)
            call(size - turn, turn)
            found.append(out.clone())
        assert torch.equal(*found), turn
        assert plan.replays == 1 + turn // 12


def test_copies_and_fills_of_buffers(torch):
    def buffers(n):
        made = [silo.Buffer(n, "int32", device="cuda") for _ in range(3)]
        for one in made:
            one.copy_from(np.arange(n, dtype=np.int32))
        return made

    kernel, _ = plan_mix.declared()

    def once(x, kept, out, n):
        kept.copy_from(x)
        x.fill(3)
        out.copy_from(kept)
        kernel(x, kept, kept, kept, out, n, 2, 1)

    plan = silo.plan(once, *buffers(1000), 1000)
    assert plan.report().kernels == ("Buffer.copy", "Buffer.fill", "Buffer.copy", "mix3")
    for n in (1000, 33, 4096, 1, 100_003):
        mine, theirs = buffers(n), buffers(n)
        plan(*mine, n)
        once(*[*theirs, n])
        for one, other in zip(mine, theirs, strict=True):
            assert np.array_equal(one.numpy(), other.numpy()), n
    assert plan.report().forms[0].way == "device", str(plan.report())


@pytest.mark.all
def test_a_million_replays_do_not_grow(torch):
    kernels = plan_mix.declared()
    arrays = ints(torch, 5, seed=2)

    def step(a, b, c, d, out, n, v):
        for index in range(4):
            kernels[index % 2](a, b, c, d, out, n, v, index)

    plan = silo.plan(step, *arrays, 64, 1)
    for turn in range(1000):
        plan(*arrays, 1 + turn % 64, turn)
    torch.cuda.synchronize()
    free, before = torch.cuda.mem_get_info()[0], grown.resident()
    for turn in range(1_000_000):
        plan(*arrays, 1 + turn % 64, turn)
    torch.cuda.synchronize()
    assert free - torch.cuda.mem_get_info()[0] < 1 << 20
    assert grown.resident() - before < 8 << 20
    assert plan.replays >= 1_000_000
