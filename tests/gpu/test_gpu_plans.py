"""Plans as graphs on a real NVIDIA GPU: random replacements against launches one by one, each way of updating."""

import os
import random

import pytest

import graph_plans
import plan_mix
import silo

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
