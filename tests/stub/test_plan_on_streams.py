"""Plans of launches on several streams: the nodes of the driver's graph have the edges that the events make."""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import random
import re

import pytest

import silo
import stream_programs
from made_bundles import write_made
from silo.errors import ArgumentError

torch = pytest.importorskip("torch")
fake_streams = pytest.importorskip("fake_streams")
MAIN, Event, Stream = fake_streams.MAIN, fake_streams.Event, fake_streams.Stream


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_made(tmp_path_factory.mktemp("made") / "made.silo")


@pytest.fixture
def kernels(stub, made, monkeypatch):
    for name in ("add_64", "add_256", "add_any"):
        stub.parameters(name, 8, 8, 8, 4)
    for replaced in fake_streams.replacements():
        monkeypatch.setattr(*replaced)
    return silo.load(made)


def arrays(device="cuda:0", count=4):
    return [silo.Buffer((1024,), "float32", device) for _ in range(count)]


def edges(stub):
    """Of each kernel of the last graph the numbers of those it waits for; the updater is none of them."""
    lines = stub.graph()
    shift = int(" silo_plan_update " in lines[0])
    found = []
    for line in lines[shift:]:
        numbers = re.search(r"after=([\d,]*)", line).group(1)
        found.append([int(number) - shift for number in numbers.split(",") if number and int(number) >= shift])
    return found


def running(program, kernels, events=None):
    """A function that makes the steps of a program."""

    def step(x, y, out, n):
        streams, recorded = {(0, 0): MAIN}, {}
        for kind, number, key in program:
            stream = streams.setdefault(key, Stream(key[1]))
            if kind == "launch":
                kernels.add(x, y, out, n, stream=stream)
            else:
                event = recorded.setdefault(number, Event())
                event.record(stream) if kind == "record" else event.wait(stream)

    return step


def test_random_programs_are_graphs_with_their_order(stub, kernels):
    dice, refused, beside, seen = random.Random(3), 0, 0, []
    for name in ("add_64", "add_256", "add_any"):
        stub.run(name, lambda launch: seen.append(launch.stream))
    while refused < 20 or beside < 20:
        program = stream_programs.draw(dice)
        nodes, _ = stream_programs.recorded(program)
        if not nodes:
            continue
        wanted = stream_programs.reference(program)
        step = running(program, kernels)
        if wanted is None:
            refused += 1
            with pytest.raises(ArgumentError, match=r"is on a stream that|it waits for an event|it records an event"):
                silo.plan(step, *arrays(count=3), 64)
            continue
        plan = silo.plan(step, *arrays(count=3), 64)
        assert stream_programs.closure(edges(stub)) == wanted, program
        beside += any(len(one) < number for number, one in enumerate(wanted))
        (form,) = plan.report().forms
        assert (form.way, form.streams, form.launches) == ("device", len(set(nodes)), len(nodes))
        seen.clear()
        plan(*arrays(count=3), 64)
        assert seen == [0] * len(nodes)  # one graph, on the stream that is current
        assert plan.replays == 1


def test_a_fork_and_a_join_by_torchs_streams(stub, kernels):
    side, other = Stream(64), Stream(128)

    def step(x, y, between, out, n):
        kernels.add(x, y, between, n)
        for one in (side, other):
            one.wait_stream(torch.cuda.current_stream())
            kernels.add(x, y, out, n, stream=one)
            kernels.add(x, y, out, n, stream=one)
        kernels.add(x, y, out, n)
        MAIN.wait_stream(side)
        MAIN.wait_event(other.record_event())
        kernels.add(x, y, out, n)

    plan = silo.plan(step, *arrays(), 64)
    assert edges(stub) == [[], [0], [1], [0], [3], [0], [2, 4, 5]]
    assert "7 launches on 3 streams" in str(plan.report())
    with silo.planning() as block:
        step(*arrays(), 64)
    assert edges(stub) == [[], [0], [1], [0], [3], [0], [2, 4, 5]]
    block()
    stub.fail("cuGraphCreate", 801, 100)
    singly = silo.plan(step, *arrays(), 64)
    stub.fail_no_more()
    assert singly.report().forms[0].way == "singly"
    singly(*arrays(), 64)


def test_streams_that_the_function_makes_are_other_ones_each_time(stub, kernels):
    handles = iter(range(64, 10_000, 64))

    def step(x, y, out, n):
        side = Stream(next(handles))
        side.wait_stream(MAIN)
        kernels.add(x, y, out, n, stream=side)
        kernels.add(x, y, out, n)
        MAIN.wait_stream(side)

    silo.plan(step, *arrays(count=3), 64)
    assert edges(stub) == [[], []]


def test_events_happen_in_blocks_and_not_while_a_function_is_recorded(stub, kernels):
    side, events = Stream(64), []

    def step(x, y, out, n):
        events.append(fork := Event())
        fork.record(MAIN)
        fork.wait(side)
        kernels.add(x, y, out, n, stream=side)
        events.append(join := Event())
        join.record(side)
        MAIN.wait_event(join)

    silo.plan(step, *arrays(count=3), 64)
    assert [len(one.done) for one in events] == [2, 2, 0, 0, 0, 0]
    events.clear()
    with silo.planning():
        step(*arrays(count=3), 64)
    assert [len(one.done) for one in events] == [2, 2]


def test_an_order_that_changes_and_other_mistakes_are_errors(stub, kernels):
    side, outside, turns = Stream(64), Event(), []

    def launches(x, y, out, n, stream=None):
        kernels.add(x, y, out, n, stream=stream)

    def in_turns(*given):
        turns.append(1)
        side.wait_stream(MAIN)
        launches(*given)
        if len(turns) % 2:
            side.wait_stream(MAIN)
        launches(*given, stream=side)
        MAIN.wait_stream(side)

    def waits_for_more(*given):
        outside.wait(MAIN)
        launches(*given)

    def records_for_others(*given):
        launches(*given)
        outside.record(MAIN)

    def never_joins(*given):
        side.wait_stream(MAIN)
        launches(*given, stream=side)

    def on_its_own(*given):
        launches(*given, stream=side)

    def without_a_handle(*given):
        launches(*given)
        outside.record(object())

    def of_another_device(*given):
        far = Stream(0, device_index=1)
        MAIN.wait_stream(far)
        launches(*given)

    for function, words in (
        (in_turns, "its streams waited for each other in another way the second time"),
        (waits_for_more, "waits for an event whose work is not the plan's"),
        (of_another_device, "waits for an event whose work is not the plan's"),
        (records_for_others, "records an event that it does not wait for"),
        (never_joins, r"node 1 \(add\) is on a stream that the current one does not wait for at the end"),
        (on_its_own, r"node 1 \(add\) is on a stream that does not wait for the one that is current"),
        (without_a_handle, "object that does not give its driver's handle"),
    ):
        with pytest.raises(ArgumentError, match=words):
            silo.plan(function, *arrays(count=3), 64)
    plan = silo.plan(launches, *arrays(count=3), 64)
    plan(*arrays(count=3), 64)
    assert plan.replays == 1


def test_copies_of_buffers_are_made_on_their_streams(stub, kernels):
    from silo.launch import plan_copies

    text, sizes = plan_copies.kernel_ptx, {"copy": "8,8,8", "fill": "8,4,8"}
    plan_copies.kernel_ptx = lambda what: f"// stub: params={sizes[what]}\n" + text(what)
    side = Stream(64)

    def step(x, y, out):
        side.wait_stream(MAIN)
        out.copy_from(x, stream=side.cuda_stream)
        y.fill(1)
        MAIN.wait_stream(side)

    plan = silo.plan(step, *arrays(count=3))
    plan_copies.kernel_ptx = text
    assert edges(stub) == [[], []]
    assert plan.report().kernels == ("Buffer.copy", "Buffer.fill")


@pytest.mark.parametrize(
    "wrong", [((0,), ()), ((), (1,)), ((), (0, 0)), ((),), ((), (-1,)), ((), (1 << 40,)), ((), ("a",)), ((), 3), 3]
)
def test_edges_that_no_plan_can_have_are_refused(stub, kernels, monkeypatch, wrong):
    from silo.launch.plan_forms import FormMaker

    def step(x, y, out):
        kernels.add(x, y, out, 64)
        kernels.add(out, y, x, 64)

    given = arrays(count=3)
    monkeypatch.setattr(FormMaker, "_edges", lambda self: wrong)
    with pytest.raises((ValueError, TypeError, OverflowError, SystemError, ArgumentError)):
        silo.plan(step, *given)
    monkeypatch.setattr(FormMaker, "_edges", lambda self: ((), ()))
    silo.plan(step, *given)
    assert edges(stub) == [[], []]
