"""The main loop of ``silo agent``: requests arrive on standard input, answers and heartbeats go to standard output.

Before its first message an agent writes :data:`START` on its own line, which separates its messages from text that a
login or a job scheduler printed. Its first message holds its facts (:class:`.AgentFacts`).
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
from silo.tuning.agents.agent_documents import AgentFacts

__all__ = ["BEAT_S", "START", "Answers", "serve_agent"]

START = b"silo-agent/1\n"

# Seconds between heartbeats. A client drops an agent after several missing heartbeats.
BEAT_S = 3.0


class Answers(Protocol):
    """The object that answers requests: an :class:`~silo.tuning.agents.device_agent.Agent`, or a test's replacement."""

    @property
    def facts(self) -> AgentFacts:
        """The facts to send in the first message."""
        ...

    def answer(self, message: Message) -> bytes:
        """Carries out one request and returns the encoded answer."""
        ...


def serve_agent(make: Callable[[], Answers]) -> int:
    """Answers requests until standard input ends, and then ends this process.

    Text that the measured code prints goes to standard error.

    Returns only if ``make`` fails: sends the error as the first message, and returns the exit status.
    """
    # The client reads only messages: they go to a copy of file descriptor 1, which itself becomes standard error for
    # all code that prints.
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
    """The agent's output stream. A lock keeps messages of two threads whole."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = Mutex()

    def write(self, data: bytes) -> None:
        """Writes and flushes; ends this process if nothing reads the stream any more."""
        with self._lock:
            try:
                self._stream.write(data)
                self._stream.flush()
            except OSError:
                os._exit(1)  # the measuring processes end together with this process


def _beat(out: _Out) -> None:
    pause = threading.Event()
    while not pause.wait(BEAT_S):
        out.write(encode({"outcome": "alive"}))


def _watch(stream: BinaryIO, messages: queue.SimpleQueue[Message]) -> None:
    """Puts requests into ``messages``; ends this process at the end of the stream, because the client is gone."""
    try:
        pass_on(stream, messages)
    except (EOFError, OSError):
        os._exit(0)
    except SiloError as error:
        print(f"silo agent: {error}", file=sys.stderr)  # for the user who started the agent
        os._exit(3)
