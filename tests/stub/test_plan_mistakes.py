"""Plans from Python on the stub GPUs: other devices, launches that the driver refuses, streams that are captured."""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import pytest

import silo
from made_bundles import write_made
from silo.errors import ArgumentError, DeviceError, LaunchError, SiloError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_made(tmp_path_factory.mktemp("made") / "made.silo")


@pytest.fixture
def kernels(stub, made):
    for name in ("add_64", "add_256", "add_any"):
        stub.parameters(name, 8, 8, 8, 4)
    stub.parameters("add_wide", 8, 8, 8, 8)
    stub.parameters("rows", 8, 4)
    return silo.load(made)


def arrays(device="cuda:0", kind="float32", count=4):
    return [silo.Buffer((1024,), kind, device) for _ in range(count)]


def stepping(kernels):
    def step(x, y, between, out, n):
        kernels.add(x, y, between, n)
        kernels.add(between, x, out, n)

    return step


def watched(stub):
    seen = []
    for name in ("add_64", "add_256", "add_any"):
        stub.run(name, lambda launch, name=name: seen.append(launch.parameters))
    return seen


def taken(seen):
    found, seen[:] = list(seen), []
    return found


def test_arrays_of_another_device_are_another_form(stub, kernels):
    step, seen = stepping(kernels), watched(stub)
    plan = silo.plan(step, *arrays(), 64)
    taken(seen)
    for turn, device in enumerate(("cuda:1", "cuda:0", "cuda:1", "cuda:0")):
        values = arrays(device)
        plan(*values, 64)
        ours = taken(seen)
        step(*values, 64)
        assert ours == taken(seen)
        assert len(plan.report().forms) == 2, turn
    assert plan.replays == 3


def test_arrays_of_two_devices_launch_nothing(stub, kernels):
    seen = watched(stub)
    plan = silo.plan(stepping(kernels), *arrays(), 64)
    taken(seen)
    x, y, between, _ = arrays()
    other = arrays("cuda:1", count=1)[0]
    with pytest.raises(ArgumentError, match="cuda:1"):
        plan(x, other, between, y, 64)
    assert not taken(seen)
    plan(x, y, between, between, 64)
    assert len(taken(seen)) == 2


def test_another_dtype_says_what_the_kernel_takes(stub, kernels):
    seen = watched(stub)
    plan = silo.plan(stepping(kernels), *arrays(), 64)
    taken(seen)
    with pytest.raises(SiloError, match=r"float16|fp16"):
        plan(*arrays(kind="float16"), 64)
    assert not taken(seen)
    plan(*arrays(), 64)
    assert len(taken(seen)) == 2


def test_launches_on_two_devices_are_no_plan(stub, kernels):
    def step(x, y):
        kernels.add(x, x, x, 64)
        kernels.add(y, y, y, 64)

    (x,), (y,) = arrays(count=1), arrays("cuda:1", count=1)
    with pytest.raises(ArgumentError, match="launched on another device than the launches before it"):
        silo.plan(step, x, y)


@pytest.mark.parametrize("code", [700, 719, 999])
def test_a_graph_that_the_driver_refuses_is_an_error_and_the_next_replay_is_whole(stub, kernels, code):
    step, seen = stepping(kernels), watched(stub)
    plan = silo.plan(step, *arrays(), 64)
    assert plan.report().forms[0].way == "device"
    taken(seen)
    stub.fail("cuGraphLaunch", code)
    values = arrays()
    with pytest.raises(LaunchError, match="cannot launch a plan of 2 kernels"):
        plan(*values, 64)
    stub.fail_no_more()
    assert not taken(seen)
    plan(*values, 64)
    ours = taken(seen)
    step(*values, 64)
    assert ours == taken(seen)


def test_a_replay_into_a_capture_is_refused(stub, kernels):
    step, seen = stepping(kernels), watched(stub)
    plan = silo.plan(step, *arrays(), 64)
    taken(seen)
    values = arrays()
    stub.capture(0)
    with pytest.raises(LaunchError, match=r"cannot launch a plan of 2 kernels .* stream is capturing"):
        plan(*values, 64)
    stub.capture(0, 0)
    assert not taken(seen)
    plan(*values, 64)
    assert len(taken(seen)) == 2


def test_a_recording_on_a_captured_stream_is_refused_before_anything_is_launched(stub, kernels):
    step, seen = stepping(kernels), watched(stub)
    values = arrays()
    plan = silo.plan(step, *values, 64)
    taken(seen)
    stub.capture(0)
    for call in (
        lambda: silo.plan(step, *values, 64),
        lambda: plan(*values, 300),  # another form
        lambda: silo.planning(x=values[0]).__enter__(),
    ):
        with pytest.raises(ArgumentError, match="a plan cannot be recorded on a stream that is being captured"):
            call()
    assert not taken(seen)
    stub.capture(0, 0)
    plan(*values, 300)
    plan(*values, 300)
    assert len(taken(seen)) == 4
    assert plan.replays == 1


def test_the_kernels_of_a_driver_without_graphs_are_launched_one_by_one(stub, kernels):
    step, seen = stepping(kernels), watched(stub)
    stub.fail("cuGraphCreate", 801, -1)
    plan = silo.plan(step, *arrays(), 64)
    taken(seen)
    for count in (64, 48, 0):
        values = arrays()
        plan(*values, count)
        ours = taken(seen)
        step(*values, count)
        assert ours == taken(seen)
    stub.fail_no_more()
    assert {form.way for form in plan.report().forms} == {"singly"}
    assert all(form.reason for form in plan.report().forms)


def test_a_driver_that_makes_no_graph_launches_one_by_one_and_says_how_far_it_came(stub, kernels):
    step, seen = stepping(kernels), watched(stub)
    stub.fail("cuGraphCreate", 801, 100)
    plan = silo.plan(step, *arrays(), 64)
    stub.fail_no_more()
    (form,) = plan.report().forms
    assert form.way == "singly", form
    assert "launched one by one" in form.reason
    taken(seen)
    values = arrays()
    plan(*values, 64)
    assert len(taken(seen)) == 2
    stub.run("add_64", lambda launch: stub.fail("cuLaunchKernelEx", 700))
    stub.run("add_any", lambda launch: stub.fail("cuLaunchKernelEx", 700))
    with pytest.raises((LaunchError, DeviceError), match="1 kernels were launched; cannot go on"):
        plan(*values, 64)
    stub.fail_no_more()
