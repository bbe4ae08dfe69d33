"""The life of a worker process: messages in, one outcome each, and an end with the process that started it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from silo.compile.compiler_process import end_group_with_this_process
from silo.compile.wire import Message, encode, read_message

__all__ = ["die_with_parent", "give_way", "pass_on", "run_when_idle", "serve"]

_PR_SET_PDEATHSIG = 1
_LEAST_NICE = 19


def serve(start: Callable[[], Callable[[Message], bytes]]) -> None:
    """Answer each message on standard input with bytes on the original standard output; never returns.

    All printed output goes to standard error. ``start`` makes the function that answers.
    """
    die_with_parent()
    if os.getpgrp() == os.getpid():
        # The signal of the parent's death reaches this process alone, and not the compilers that it has started.
        end_group_with_this_process()
    # Nothing but outcomes may reach the parent: standard output is replaced, so that printing cannot reach it.
    outcomes = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_watch, args=(sys.stdin.buffer, messages), daemon=True).start()
    answer = start()
    outcomes.write(encode({"outcome": "ready"}))
    outcomes.flush()
    while True:
        outcomes.write(answer(messages.get()))
        outcomes.flush()
        sys.stdout.flush()
        sys.stderr.flush()


def give_way(nice: int) -> None:
    """Let other processes run first if CPUs are scarce. As far as the system allows; nothing depends on it."""
    with contextlib.suppress(OSError, AttributeError):  # Windows has no nice
        os.nice(nice)
    # A worker leads a session of its own, and Linux may share CPUs among sessions before it looks at niceness
    # (CONFIG_SCHED_AUTOGROUP, sched(7)).
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")


def run_when_idle() -> None:
    """Run only on CPUs that no other process wants, as far as the system allows; so do children from now on."""
    give_way(_LEAST_NICE)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def die_with_parent() -> None:
    """End with the process that started this one (on Linux; elsewhere nothing happens)."""
    # The signal comes when the thread that started this process ends; the pool starts one in the thread that serves it.
    # It also ends code that holds the interpreter lock, where _watch could not act.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _stop_group() -> None:
    # The parent made this process the leader of its own group; child processes of its own end with it.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def pass_on(stream: BinaryIO, messages: queue.SimpleQueue[Message]) -> None:
    """Put every message of ``stream`` into ``messages``. Raises EOFError or OSError at its end."""

    def take(count: int) -> bytes:
        data = stream.read(count)
        if len(data) < count:
            raise EOFError
        return data

    while True:
        messages.put(read_message(take))


def _watch(stream: BinaryIO, messages: queue.SimpleQueue[Message]) -> None:
    """Pass messages on; the end of the stream means that the parent is gone."""
    try:
        pass_on(stream, messages)
    except (EOFError, OSError):
        _stop_group()
