"""The life of ``silo agent``: messages in on standard input, answers and heartbeats out on standard output.

Before its first message an agent writes :data:`START` on a line of its own, so that what a login or a job starter
printed before is told from what it says. Its first message says what it is
(:class:`silo.tuning.agents.agent_facts.AgentFacts`).
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO, Protocol

from silo.compile.wire import Message, encode, encode_error
from silo.compile.worker_serving import pass_on
from silo.errors import SiloError
from silo.forks import Mutex
from silo.tuning.agents.agent_facts import AgentFacts

__all__ = ["BEAT_S", "START", "Answers", "serve_agent"]

START = b"silo-agent/1\n"

# Seconds between heartbeats. An agent that was not heard for many times as long is given up.
BEAT_S = 3.0


class Answers(Protocol):
    """What answers messages: :class:`silo.tuning.agents.device_agent.Agent`, or what a test has in its place."""

    @property
    def facts(self) -> AgentFacts:
        """What it says of itself first."""
        ...

    def answer(self, message: Message) -> bytes:
        """The outcome of one request."""
        ...


def serve_agent(make: Callable[[], Answers]) -> int:
    """Answer until standard input ends; what anything prints goes to standard error.

    Returns the exit status where no agent could be made, which is said in the place of its first message.
    """
    # Nothing but messages may reach the other side: standard output is moved away from under whatever prints.
    out = _Out(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_watch, args=(sys.stdin.buffer, messages), daemon=True).start()
    out.write(START)
    try:
        agent = make()
    except SiloError as error:
        out.write(encode_error(error))
        return 3
    out.write(encode({"outcome": "ready", "agent": agent.facts.to_json()}))
    threading.Thread(target=_beat, args=(out,), daemon=True).start()
    while True:
        out.write(agent.answer(messages.get()))
        sys.stdout.flush()
        sys.stderr.flush()


class _Out:
    """Standard output, which two threads write whole messages to."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = Mutex()

    def write(self, data: bytes) -> None:
        """Write and flush; the end of this process where nobody reads any more."""
        with self._lock:
            try:
                self._stream.write(data)
                self._stream.flush()
            except OSError:
                os._exit(1)  # measuring processes end with this one


def _beat(out: _Out) -> None:
    pause = threading.Event()
    while not pause.wait(BEAT_S):
        out.write(encode({"outcome": "alive"}))


def _watch(stream: BinaryIO, messages: queue.SimpleQueue[Message]) -> None:
    """Pass messages on; the end of the stream means that nobody wants this agent any more."""
    try:
        pass_on(stream, messages)
    except (EOFError, OSError):
        os._exit(0)
    except SiloError as error:
        print(f"silo agent: {error}", file=sys.stderr)  # to the one who started it
        os._exit(3)
