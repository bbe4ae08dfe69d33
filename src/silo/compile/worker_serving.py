"""The main loop of a worker process: it answers each message, and ends with the process that started it."""

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
    """Answers each message on standard input with bytes on the original standard output; never returns.

    All printed output goes to standard error. ``start`` returns the function that answers.
    """
    die_with_parent()
    if os.getpgrp() == os.getpid():
        # The signal at the parent's death reaches only this process, not the compilers that it has started.
        end_group_with_this_process()
    # The parent must receive only outcomes, so standard output is redirected and printing does not reach the parent.
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
    """Lowers this process's priority, as far as the system allows; nothing depends on it."""
    with contextlib.suppress(OSError, AttributeError):  # Windows has no nice
        os.nice(nice)
    # A worker leads its own session. Linux may divide CPU time among sessions first and apply nice values only within a
    # session (CONFIG_SCHED_AUTOGROUP, sched(7)), so the session's priority is lowered too.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")


def run_when_idle() -> None:
    """Makes this process and its later children run only on otherwise idle CPUs, as far as the system allows."""
    give_way(_LEAST_NICE)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def die_with_parent() -> None:
    """Makes this process end with the process that started it. Has an effect only on Linux."""
    # The signal comes when the thread that started this process ends; the pool starts each worker in the thread that
    # serves it. The signal also ends code that holds the interpreter lock, when _watch cannot run.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _stop_group() -> None:
    # The parent made this process the leader of a group, so its child processes are in the group and end with it.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def pass_on(stream: BinaryIO, messages: queue.SimpleQueue[Message]) -> None:
    """Puts every message of ``stream`` into ``messages``. Raises EOFError or OSError at the end of the stream."""

    def take(count: int) -> bytes:
        data = stream.read(count)
        if len(data) < count:
            raise EOFError
        return data

    while True:
        messages.put(read_message(take))


def _watch(stream: BinaryIO, messages: queue.SimpleQueue[Message]) -> None:
    """Passes messages on; the end of the stream means that the parent has ended, so this process ends too."""
    try:
        pass_on(stream, messages)
    except (EOFError, OSError):
        _stop_group()
