"""Plans as graphs on a real NVIDIA GPU: random replacements against launches one by one, each way of updating."""

import os

import pytest

import graph_plans
import plan_mix

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
