"""Random programs on several streams with events, and the order in which their launches must end."""

from __future__ import annotations

import random
from collections.abc import Sequence

from silo.launch.plan_streams import Stream, StreamMark

Step = tuple[str, int, Stream]
"""One step: ``launch`` with its number, or ``record`` or ``wait`` with the event's number; and the stream."""


def draw(dice: random.Random) -> list[Step]:
    """Return a random program on up to four streams.

    In about half of the programs all streams fork from the first and join it again, as plans require.
    """
    streams: list[Stream] = [(0, 64 * index) for index in range(dice.randrange(1, 5))]
    orderly = dice.random() < 0.6
    program: list[Step] = []
    event = launched = 0

    def wait(to: Stream, on: Stream) -> None:
        nonlocal event
        program.extend((("record", event, on), ("wait", event, to)))
        event += 1

    for one in streams[1:] if orderly else []:
        wait(one, streams[0])
    for _ in range(dice.randrange(1, 14)):
        turn = dice.random()
        if turn < 0.55:
            program.append(("launch", launched, dice.choice(streams)))
            launched += 1
        elif turn < 0.9 or orderly:
            wait(dice.choice(streams), dice.choice(streams))
        else:
            program.append((dice.choice(("record", "wait")), dice.randrange(event + 1), dice.choice(streams)))
    for one in streams[1:] if orderly or dice.random() < 0.5 else []:
        wait(streams[0], one)
    return program


def recorded(program: Sequence[Step]) -> tuple[list[Stream], list[StreamMark]]:
    """Return the streams of the launches, and the stream marks between them, in the form of a recording."""
    nodes: list[Stream] = []
    marks: list[StreamMark] = []
    for kind, number, stream in program:
        if kind == "launch":
            nodes.append(stream)
        else:
            marks.append(StreamMark(len(nodes), number, stream, kind == "wait"))
    return nodes, marks


def closure(after: Sequence[Sequence[int]]) -> list[set[int]]:
    """Return, for each node, all nodes that end before it begins."""
    found: list[set[int]] = []
    for edges in after:
        found.append({*edges, *(more for edge in edges for more in found[edge])})
    return found


def reference(program: Sequence[Step]) -> list[set[int]] | None:
    """Return, for each launch, the launches that end before it begins; None if no plan can keep this order.

    Every step is a point behind the last point of its stream; a wait is also behind the last record of its event. This
    reference computes full sets of points, without the shortcuts of the code under test. A stream belongs to the plan
    once it is behind the plan's beginning.
    """
    behind: list[set[int]] = [{0}]  # for each point, all points before it and itself; point 0 is the beginning
    last: dict[Stream, int] = {(0, 0): 0}
    recorded_at: dict[int, int | None] = {}
    unused: set[int] = set()
    launches: list[int] = []
    for kind, number, stream in program:
        at = last.get(stream)
        if kind == "record":
            recorded_at[number] = at
            unused.add(number)
            continue
        if kind == "wait":
            unused.discard(number)
            if (event := recorded_at.get(number)) is None:
                return None
            before = behind[event] | (behind[at] if at is not None else set())
        elif at is None:
            return None
        else:
            before = set(behind[at])
        behind.append({*before, len(behind)})
        last[stream] = len(behind) - 1
        if kind == "launch":
            launches.append(len(behind) - 1)
    if unused or any(point not in behind[last[0, 0]] for point in launches):
        return None
    numbers = {point: number for number, point in enumerate(launches)}
    return [{numbers[one] for one in behind[point] if one in numbers and one != point} for point in launches]
