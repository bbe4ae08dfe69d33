"""The order of a plan's nodes on several streams, compared with a linear reference of every operation."""

import random
import threading
from types import SimpleNamespace

import pytest

import stream_programs
from silo.launch.plan_streams import StreamMark, order_of_nodes, stream_key, watched_events
from silo.launch.plan_torch import TorchWork

MAIN, SIDE, OTHER = (0, 0), (0, 64), (0, 128)


def mark(at, event, stream, *, waits):
    return StreamMark(at, event, stream, waits)


def test_random_programs_have_the_order_that_each_operation_by_itself_gives():
    dice = random.Random(11)
    refused = 0
    for _ in range(4000):
        program = stream_programs.draw(dice)
        nodes, marks = stream_programs.recorded(program)
        found = order_of_nodes([(f"n{number}", stream) for number, stream in enumerate(nodes)], marks, (0, 0))
        wanted = stream_programs.reference(program)
        assert (wanted is None) == bool(found.refused), (program, found)
        refused += wanted is None
        if wanted is not None:
            after = found.after or tuple((number - 1,) if number else () for number in range(len(nodes)))
            assert stream_programs.closure(after) == wanted, (program, found)
            for number, edges in enumerate(after):  # no edge that another path gives
                assert not any(edge in wanted[more] for edge in edges for more in edges), (number, after)
    assert 500 < refused < 3500


def test_a_chain_needs_no_edges():
    nodes = [("a", MAIN), ("b", SIDE), ("c", MAIN)]
    marks = [
        mark(1, 0, MAIN, waits=False),
        mark(1, 0, SIDE, waits=True),
        mark(2, 1, SIDE, waits=False),
        mark(2, 1, MAIN, waits=True),
    ]
    assert order_of_nodes(nodes, marks, MAIN).after is None
    assert order_of_nodes(nodes, marks, MAIN).streams == 2
    assert order_of_nodes([("a", MAIN)] * 3, [], MAIN) == order_of_nodes([("b", MAIN)] * 3, [], MAIN)


@pytest.mark.parametrize(
    ("nodes", "marks", "words"),
    [
        ([SIDE], [], "n0 is on a stream that does not wait for the one that is current"),
        ([MAIN, SIDE], [], "n1 is on a stream that does not wait"),
        ([MAIN], [mark(0, 0, MAIN, waits=True)], "whose work is not the plan's"),
        (
            [MAIN],
            [mark(0, 0, SIDE, waits=False), mark(0, 0, MAIN, waits=True)],
            "an event whose work is not the plan's",
        ),
        ([MAIN], [mark(1, 0, MAIN, waits=False)], "records an event that it does not wait for"),
        (
            [MAIN, SIDE],
            [mark(0, 0, MAIN, waits=False), mark(0, 0, SIDE, waits=True)],
            "n1 is on a stream that the current one does not wait for at the end",
        ),
    ],
)
def test_an_order_that_a_replay_would_not_keep_is_refused(nodes, marks, words):
    found = order_of_nodes([(f"n{number}", stream) for number, stream in enumerate(nodes)], marks, MAIN)
    assert words in found.refused
    assert found.after is None


def test_two_names_of_the_default_stream_are_one():
    assert stream_key(0, 1) == stream_key(0, 0) == MAIN
    assert stream_key(1, 0) != MAIN


def test_events_are_watched_in_their_thread_alone_and_torchs_methods_come_back():
    class Event:
        def __init__(self):
            self.done = []

        def record(self, stream=None):
            self.done.append(("record", stream))

        def wait(self, stream=None):
            self.done.append(("wait", stream))

    own = Event.record, Event.wait
    torch = SimpleNamespace(cuda=SimpleNamespace(Event=Event, current_stream=lambda: "current"))
    seen = []

    def note(event, stream, waits):
        seen.append((stream, waits))
        return len(seen) > 1

    event, elsewhere = Event(), Event()
    with watched_events(torch, note):
        with watched_events(torch, note):
            event.record()
        event.wait("s")
        thread = threading.Thread(target=elsewhere.record)
        thread.start()
        thread.join()
    assert seen == [("current", False), ("s", True)]
    assert event.done == [("wait", "s")]
    assert elsewhere.done == [("record", None)]
    assert (Event.record, Event.wait) == own
    with watched_events(SimpleNamespace(cuda=SimpleNamespace()), note):
        event.record("t")
    assert event.done[-1] == ("record", "t")


def test_memory_that_another_stream_uses_stays_the_plans():
    torch = pytest.importorskip("torch")
    work, made = TorchWork("a plan", [], run=False), torch.ones(3)
    work.operation(torch, torch.ops.aten.record_stream.default, (made, None), {})
    assert [one is made for one in work.keeps] == [True]
    assert not work.nodes
