"""Finds the order of a plan's nodes on several streams, from the events that torch records and waits for meanwhile.

A node is a launch or a captured operation of torch. While a plan is recorded, calls of ``torch.cuda.Event.record`` and
``wait`` are noted with their position among the recorded launches: all of torch's streams wait for each other through
these two methods. :func:`order_of_nodes` turns the notes into edges, by the rules of ``torch.cuda.graph``: work on
another stream must wait for the stream that is current when the plan is called, and at the end that stream must wait
for the work.
"""

# ruff: noqa: ANN401  # torch is optional: its objects have no types here
from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from silo.errors import ArgumentError
from silo.forks import Mutex
from silo.launch import native

__all__ = ["NodeOrder", "Stream", "StreamMark", "order_of_nodes", "refuse_capture", "stream_key", "watched_events"]

Stream = tuple[int, int]
"""The index of a device, and the driver's handle of a stream on it."""


def stream_key(device: int, handle: int) -> Stream:
    """Returns the key of a stream. Handle 1 is another name for the default stream, 0."""
    return device, 0 if handle == 1 else handle


class StreamMark(NamedTuple):
    """A note that a stream recorded an event or, with ``waits``, waited for it.

    ``at`` is the number of the plan's nodes (launches, and operations of torch) that were recorded earlier, ``event``
    the event's number.
    """

    at: int
    event: int
    stream: Stream
    waits: bool


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """The order of a plan's nodes.

    ``after`` has, for each node, the nodes that it waits for; None if each waits for its predecessor.

    ``refused`` is the reason why a replay cannot keep the order, or empty. ``streams`` is the number of streams with
    nodes.
    """

    after: tuple[tuple[int, ...], ...] | None
    streams: int
    refused: str = ""


_WAY_OUT: Final = (
    ". Let it wait by torch's events (side.wait_stream(torch.cuda.current_stream()) before the work, and the other way"
    " round behind it), or make a plan for each stream"
)


def order_of_nodes(nodes: Sequence[tuple[str, Stream]], marks: Sequence[StreamMark], origin: Stream) -> NodeOrder:
    """Returns the edges between nodes.

    Args:
        nodes: for each node, in order, its name (for reasons) and its stream.
        marks: events recorded and waited for, in order.
        origin: the stream that was current when the plan was recorded; a replay is launched on it.

    >>> main, side = (0, 0), (0, 64)
    >>> fork = [StreamMark(1, 0, main, False), StreamMark(1, 0, side, True)]
    >>> join = [StreamMark(3, 1, side, False), StreamMark(3, 1, main, True)]
    >>> nodes = [("a", main), ("b", side), ("c", main), ("d", main)]
    >>> order_of_nodes(nodes, fork + join, main).after
    ((), (0,), (0,), (1, 2))
    >>> order_of_nodes(nodes, fork, main).refused.partition(",")[0]
    'b is on a stream that the current one does not wait for at the end'
    """
    count = len({stream for _, stream in nodes})
    if not marks and all(stream == origin for _, stream in nodes):
        return NodeOrder(None, count)
    tails: dict[Stream, tuple[int, ...]] = {origin: ()}  # for each stream that waits for the origin: its last nodes
    # for each event: the last nodes before it; None if it covers work from before the plan
    events: dict[int, tuple[int, ...] | None] = {}
    pending: set[int] = set()  # events that no stream has waited for
    before: list[int] = []  # for each node: a bit mask of the nodes that must be done before it
    after: list[tuple[int, ...]] = []

    def last_of(nodes: set[int]) -> tuple[int, ...]:
        covered = 0
        for node in nodes:
            covered |= before[node]
        return tuple(sorted(node for node in nodes if not covered >> node & 1))

    waiting = list(marks)
    for number in range(len(nodes) + 1):
        while waiting and waiting[0].at <= number:
            mark = waiting.pop(0)
            if not mark.waits:
                events[mark.event] = tails.get(mark.stream)
                pending.add(mark.event)
                continue
            node_before = events.get(mark.event)
            pending.discard(mark.event)
            if node_before is None:
                return NodeOrder(
                    None,
                    count,
                    "it waits for an event whose work is not the plan's, for which a replay would not wait: wait"
                    " before the plan is called",
                )
            tails[mark.stream] = last_of({*tails.get(mark.stream, ()), *node_before})
        if number == len(nodes):
            break
        name, stream = nodes[number]
        if stream not in tails:
            return NodeOrder(
                None,
                count,
                f"{name} is on a stream that does not wait for the one that is current, on which a replay is"
                f" launched{_WAY_OUT}",
            )
        after.append(tails[stream])
        done = 0
        for node in tails[stream]:
            done |= before[node] | 1 << node
        before.append(done)
        tails[stream] = (number,)
    joined = 0
    for node in tails[origin]:
        joined |= before[node] | 1 << node
    for number, (name, _) in enumerate(nodes):
        if not joined >> number & 1:
            return NodeOrder(
                None,
                count,
                f"{name} is on a stream that the current one does not wait for at the end, so that work after a replay"
                f" would not either{_WAY_OUT}",
            )
    if pending:
        return NodeOrder(
            None,
            count,
            "it records an event that it does not wait for, and a replay records none: record it after the plan",
        )
    chain = all(waited == ((number - 1,) if number else ()) for number, waited in enumerate(after))
    return NodeOrder(None if chain else tuple(after), count)


def refuse_capture(name: str, arguments: Iterable[object]) -> None:
    """Raises ``ArgumentError`` if a CUDA graph is being captured.

    Checks torch's current stream, and the stream of a Buffer's launches.
    """
    cuda: Any = sys.modules.get("torch.cuda")
    captured = cuda is not None and cuda.is_initialized() and bool(cuda.is_current_stream_capturing())
    for value in arguments:
        if isinstance(value, native.GpuBuffer):
            kind, _, index = str(cast("Any", value).device).partition(":")
            captured = captured or native.gpu_capturing(kind, int(index), 0)
            break
    if captured:
        raise ArgumentError(
            f"{name}: a plan cannot be recorded on a stream that is being captured: the launches would become nodes of"
            " that graph. Make the plan before the capture begins, and call the kernels themselves within it"
        )


# ---- torch's events ----


def _event_class(torch: Any) -> Any:
    """Returns the class of torch's stream events; None if this torch has none."""
    return getattr(torch.cuda, "Event", None)


class _Recording(threading.local):
    note: Callable[[Any, Any, bool], bool] | None = None


_this_thread = _Recording()
_patching = Mutex()
# for each patched class: the number of active recordings, and torch's own methods
_patched: dict[type, tuple[int, Mapping[str, Any]]] = {}


def _following(torch: Any, original: Callable[..., Any], *, waits: bool) -> Callable[..., Any]:
    def method(self: Any, stream: Any = None) -> Any:
        note = _this_thread.note
        if note is None:
            return original(self, stream)
        current_stream = torch.cuda.current_stream() if stream is None else stream
        return original(self, current_stream) if note(self, current_stream, waits) else None

    return method


@contextmanager
def watched_events(torch: Any, note: Callable[[Any, Any, bool], bool]) -> Generator[None]:
    """Passes to ``note`` each event that this thread records on a stream, or makes a stream wait for.

    ``note`` also gets the stream, and whether it waits. The event is really recorded or waited for only if ``note``
    returns True. Other threads see no difference.
    """
    kind = _event_class(torch)
    if kind is None:
        yield
        return
    names = {"record": False, "wait": True}
    with _patching:
        count, methods = _patched.get(kind, (0, {}))
        if count == 0:
            methods = {name: getattr(kind, name) for name in names}
            for name, waits in names.items():
                setattr(kind, name, _following(torch, methods[name], waits=waits))
        _patched[kind] = (count + 1, methods)
    outer, _this_thread.note = _this_thread.note, note
    try:
        yield
    finally:
        _this_thread.note = outer
        with _patching:
            count, methods = _patched[kind]
            _patched[kind] = (count - 1, methods)
            if count == 1:
                for name, method in methods.items():
                    setattr(kind, name, method)
                del _patched[kind]
