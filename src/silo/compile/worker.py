"""A compile worker: ``python -m silo.compile.worker``. Started by :mod:`silo.compile.pool`, never by hand.

Reads jobs from standard input and writes outcomes to what was its standard output; whatever a compiler prints goes to
standard error. It never outlives the process that started it.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import BinaryIO

from silo.compile.executor import failure_of
from silo.compile.toolchain import Toolchain, installed_plugins
from silo.compile.wire import Message, encode, encode_compiled, encode_error, read_message
from silo.core.variant import CompileJob
from silo.errors import SiloError

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    # The signal comes when the thread that started this process ends; the pool starts each worker from the thread
    # that serves it. It also ends a compiler that holds the interpreter lock, where _watch could not act.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _stop_group() -> None:
    # The pool made this process the leader of its own group; a compiler's own child processes end with it.
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _watch(stream: BinaryIO, jobs: queue.SimpleQueue[Message]) -> None:
    """Pass jobs on; the end of the stream means that the pool is gone."""

    def take(count: int) -> bytes:
        data = stream.read(count)
        if len(data) < count:
            raise EOFError
        return data

    try:
        while True:
            jobs.put(read_message(take))
    except (EOFError, OSError):
        _stop_group()


def _run(header: dict[str, object], toolchain: Toolchain) -> bytes:
    try:
        job = CompileJob.from_json(header["job"])  # pyright: ignore[reportArgumentType]  # it checks
    except (KeyError, ValueError, SiloError) as error:
        return encode({"outcome": "error", "class": "CompileError", "message": f"not a compile job: {error}"})
    try:
        return encode_compiled(toolchain.compiler(job.compiler).compile(job))
    except SiloError as error:
        return encode_error(error)
    except Exception as error:  # noqa: BLE001  # a plug-in may raise anything; the job fails, the worker stays
        traceback.print_exc()
        failed = failure_of(error, job)
        last = traceback.extract_tb(error.__traceback__)[-1]
        return encode_error(type(failed)(f"{failed} ({last.filename}:{last.lineno} in {last.name})"))


def main(arguments: Sequence[str]) -> None:
    """Serve until the parent is gone. ``--plugin name=module:Class`` adds a compiler or replaces one."""
    _die_with_parent()
    plugins = dict(installed_plugins())
    for option, value in zip(arguments[::2], arguments[1::2], strict=True):
        if option != "--plugin":
            raise SystemExit(f"unknown option {option}")
        name, _, place = value.partition("=")
        plugins[name] = place
    # Nothing but outcomes may reach the pool: standard output is moved away from under the compilers.
    outcomes = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_watch, args=(sys.stdin.buffer, jobs), daemon=True).start()
    toolchain = Toolchain(plugins)
    outcomes.write(encode({"outcome": "ready"}))
    outcomes.flush()
    while True:
        header, _ = jobs.get()
        outcomes.write(_run(header, toolchain))
        outcomes.flush()
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
