"""The pool's side of a worker process: starts it, exchanges messages with it, and ends it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from silo.compile.wire import Message, read_message
from silo.errors import CompileCrashError, CompileError
from silo.settings import child_environment, settings

__all__ = ["WorkerDiedError", "WorkerHungError", "WorkerProcess", "with_own_package"]

# enough for a cold disk and a loaded machine, as a worker imports no framework before its first job
_START_LIMIT_S = 120.0
_STDERR_TAIL = 4000
_COMPLAINT = re.compile(r"\b(error|fatal|fatal error): ", re.IGNORECASE)


class WorkerDiedError(Exception):
    """The worker closed its end of a pipe: it has ended."""


class WorkerHungError(Exception):
    """The worker did not answer before the deadline."""


class WorkerProcess:
    """A running worker. Used by one thread, except :meth:`kill`, which any thread may call at any time.

    The worker leads a process group of its own, so that Ctrl-C in a terminal does not reach it and so that the
    compilers it starts end with it.

    The worker belongs to the process that started it. In a child made by fork the worker counts as dead. The child does
    not send it requests, because parent and child could get each other's answers, and does not end it.
    """

    def __init__(
        self,
        arguments: Sequence[str] = (),
        *,
        module: str = "silo.compile.worker",
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Starts ``python -m module arguments``.

        ``environment`` changes the variables that the worker inherits; the descriptors ``pass_fds`` stay open in it.
        """
        if not sys.executable:
            raise CompileError("this Python does not know its own executable, so no worker can be started")
        self._stderr: IO[bytes] = tempfile.TemporaryFile("w+b", buffering=0)  # noqa: SIM115  # closed in close()
        try:
            self._process = subprocess.Popen(
                # -P keeps the working folder off the module path: a user's own triton.py must not be imported.
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=_environment(environment or {}),
                bufsize=0,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
            )
        except OSError as error:
            self._stderr.close()
            raise CompileCrashError(f"a worker process cannot be started ({sys.executable}): {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stdout.fileno(), False)
        self._ready = False
        self._owner = os.getpid()

    @property
    def _inherited(self) -> bool:
        return os.getpid() != self._owner

    def exchange(self, request: bytes, limit_s: float) -> Message:
        """Sends one job and waits for its outcome.

        Raises:
            WorkerDiedError: the process ended.
            WorkerHungError: ``limit_s`` seconds passed, counted from when the worker was ready.
        """
        self.await_ready()
        deadline = time.monotonic() + limit_s
        # The worker writes its standard error to this file, and is idle now. The worker and this process share one
        # file position, so the worker's next output starts at the beginning.
        self._stderr.seek(0)
        self._stderr.truncate()
        self._write(request, deadline)
        return self._read(deadline)

    def await_ready(self) -> None:
        """Waits until the worker is ready. Raises as :meth:`exchange` does."""
        if not self._ready:
            self._read(time.monotonic() + _START_LIMIT_S)
            self._ready = True

    def send(self, request: bytes) -> None:
        """Sends the first job while the worker still starts; :meth:`receive` returns its outcome.

        Raises as :meth:`exchange` does.
        """
        self._write(request, time.monotonic() + _START_LIMIT_S)

    def receive(self, limit_s: float) -> Message:
        """Returns the outcome of the job that was sent. Raises as :meth:`exchange` does."""
        self.await_ready()
        return self._read(time.monotonic() + limit_s)

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0 or not poll.poll(remaining_s * 1000):
            raise WorkerHungError

    def _write(self, data: bytes, deadline: float) -> None:
        if self._inherited:
            raise WorkerDiedError
        unwritten = memoryview(data)
        while unwritten:
            self._wait(self._stdin.fileno(), select.POLLOUT, deadline)
            try:
                unwritten = unwritten[os.write(self._stdin.fileno(), unwritten) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise WorkerDiedError from error

    def _read(self, deadline: float) -> Message:
        if self._inherited:
            raise WorkerDiedError

        def take(count: int) -> bytes:
            parts: list[bytes] = []
            while count:
                self._wait(self._stdout.fileno(), select.POLLIN, deadline)
                try:
                    part = os.read(self._stdout.fileno(), min(count, 1 << 20))
                except BlockingIOError:
                    continue
                if not part:
                    raise WorkerDiedError
                parts.append(part)
                count -= len(part)
            return b"".join(parts)

        return read_message(take)

    def complaints(self) -> str:
        """Returns the lines about errors that the last job wrote to standard error, at most ten.

        LLVM and MLIR print the cause there; their exceptions only report that an error occurred.
        """
        complaints = [line.strip() for line in self._tail().splitlines() if _COMPLAINT.search(line)]
        return "\n".join(line[:300] for line in complaints[:10])

    def kill(self) -> None:
        """Kills the worker and all processes of its group at once.

        The group's number is not reused until the worker was waited for, so no other group is killed.
        """
        if self._process.returncode is None and not self._inherited:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, *, died: bool = False) -> str:
        """Kills the process if it still runs, waits for it, closes the pipes.

        Returns how it ended, and the end of its standard error.

        ``died``: the worker has closed its pipe, which happens shortly before its process ends. The worker gets a
        moment to end by itself, so that its own exit status is returned instead of the kill's.
        """
        if self._inherited:
            self._process.returncode = 0  # Popen's finalizer would wait for a process without a return code
            self._close_pipes()
            return "it belongs to the process that this one was forked from"
        if died:
            self._await_end()
        self.kill()
        code = self._process.wait()
        tail = self._tail()
        self._close_pipes()
        how = f"signal {_signal_name(-code)}" if code < 0 else f"exit status {code}"
        return f"{how}; its last output: {tail}" if tail else how

    def _close_pipes(self) -> None:
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

    def _await_end(self) -> None:
        if not hasattr(os, "waitid"):  # macOS before Python 3.13; the exit status may then be that of our own signal
            time.sleep(0.1)
            return
        # WNOWAIT leaves the process a zombie, so that no other process group can get this group's number yet.
        for _ in range(100):
            try:
                if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    return
            except ChildProcessError:
                return
            time.sleep(0.005)

    def _tail(self) -> str:
        descriptor = self._stderr.fileno()
        start = max(0, os.fstat(descriptor).st_size - _STDERR_TAIL)
        return os.pread(descriptor, _STDERR_TAIL, start).decode("utf-8", "replace").strip("\0 \n")


def with_own_package() -> dict[str, str]:
    """Returns the variables with which a Python started from here imports this same Silo."""
    root = Path(__file__).parents[2]
    if root.name in ("site-packages", "dist-packages"):
        # Nothing to add: the new process finds Silo as this process does, and an added folder of packages would come
        # before the standard library.
        return {}
    before = child_environment().get("PYTHONPATH")
    return {"PYTHONPATH": f"{root}{os.pathsep}{before}" if before else str(root)}


def _environment(wanted: Mapping[str, str]) -> dict[str, str]:
    return child_environment(**{**wanted, **with_own_package()}, **settings().for_workers)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
