"""The processes of the judge: a server that has imported everything, and a confined child of it for each job.

The server is started with an environment of its own. It forks a child for each job, which is killed when its time is
up. A job takes bytes and returns bytes, through pipes; nothing that a child sends is executed. A child that crashes,
hangs or lies costs only its own job.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, Self

from silo.compile.worker_process import with_own_package
from silo.errors import SiloError
from silo.forks import Mutex
from silo.frozen import frozen
from silo.settings import child_environment

__all__ = ["Ended", "JobProcesses", "clean_environment"]

_START_S = 120.0
_LATE_S = 5.0  # seconds that the server may take to end; after that it is killed
_STDERR = 4096
_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "SILO_CC", "CC", "LANG", "LC_ALL")


@frozen
class Ended:
    """The end of one job: the bytes that its process sent, how the process ended, and the time that it took.

    ``how`` is "" if the process exited with 0. ``complaints`` is the end of the process's standard error, which must
    not be trusted.
    """

    reply: bytes
    how: str
    complaints: str = ""
    cpu_s: float = 0.0
    wall_s: float = 0.0


def clean_environment() -> dict[str, str]:
    """Returns the server's environment: the few variables that compilers need, and none with secrets of the user."""
    own = {name: value for name, value in child_environment().items() if name in _KEPT}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    nowhere = {"HOME": "/nonexistent", "SILO_HOME": "/nonexistent/silo", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**own, **with_own_package(), **threads, **nowhere, "PYTHONHASHSEED": "0", "SILO_THREADS": "1"}


class JobProcesses:
    """The server and its jobs. Several threads may run jobs at the same time."""

    def __init__(self) -> None:
        self._lock = Mutex()
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server and all jobs."""
        with self._lock:
            if self._control is not None:
                self._control.close()  # this makes the server end
            if self._server is not None:
                try:
                    self._server.wait(_LATE_S)
                except subprocess.TimeoutExpired:
                    self._server.kill()
                    self._server.wait()
            self._server = self._control = None

    def run(self, kind: str, request: bytes, *, wall_s: float, most_bytes: int) -> Ended:
        """Runs a job to its end; returns the bytes that it sent (at most ``most_bytes``), and how it ended.

        Raises:
            SiloError: the server cannot be started.
        """
        begin = time.monotonic()
        with _pipes(4) as ends:
            (asked_out, request_in), (answer, answer_in), (errors, errors_in), (status, status_in) = ends
            for attempt in range(2):
                try:
                    self._send(kind, wall_s, (asked_out, answer_in, errors_in, status_in))
                    break
                except OSError as error:
                    self.close()
                    if attempt:
                        raise SiloError(f"the judge's processes cannot be started: {error}") from error
            for descriptor in (asked_out, answer_in, errors_in, status_in):
                ends.close(descriptor)
            return _Exchange(ends, request_in, answer, errors, status).finish(
                request, begin, wall_s + _START_S, most_bytes
            )

    def _send(self, kind: str, wall_s: float, descriptors: tuple[int, ...]) -> None:
        with self._lock:
            if self._server is None or self._server.poll() is not None:
                self._start()
            assert self._control is not None
            socket.send_fds(self._control, [json.dumps({"kind": kind, "wall_s": wall_s}).encode()], descriptors)

    def _start(self) -> None:
        self.close()  # cleans up after a server that died
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-s", "-m", "silo.judging.job_server", str(theirs.fileno())]
            self._server = subprocess.Popen(
                command,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd="/",
                start_new_session=True,
            )
        self._control = ours
        ours.settimeout(_START_S)
        ready = ours.recv(8192)
        ours.settimeout(None)
        if ready != b"ready":
            raise SiloError(
                f"the judge's server cannot start: {ready.decode('utf-8', 'replace') or 'it ended while it started'}"
            )


class _Ends(list[tuple[int, int]]):
    """Pipes, as pairs of a reading and a writing end; each end is closed only once."""

    def __init__(self, count: int) -> None:
        super().__init__(os.pipe() for _ in range(count))
        self._open = {end for pair in self for end in pair}

    def close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            os.close(descriptor)

    def close_all(self) -> None:
        for descriptor in tuple(self._open):
            self.close(descriptor)


@contextmanager
def _pipes(count: int) -> Generator[_Ends]:
    ends = _Ends(count)
    try:
        yield ends
    finally:
        ends.close_all()


class _Exchange:
    """Writes the request of a job, and reads its answer, standard error and status as they arrive."""

    def __init__(self, ends: _Ends, request_fd: int, answer: int, errors: int, status: int) -> None:
        self._ends = ends
        self._request_fd, self._answer, self._errors, self._status = request_fd, answer, errors, status

    def finish(self, request: bytes, begin: float, limit_s: float, most_bytes: int) -> Ended:
        unsent = memoryview(request)
        received: dict[int, bytearray] = {
            descriptor: bytearray() for descriptor in (self._answer, self._errors, self._status)
        }
        with selectors.DefaultSelector() as selector:
            for descriptor in received:
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            os.set_blocking(self._request_fd, False)
            selector.register(self._request_fd, selectors.EVENT_WRITE)
            waiting = set(received)
            # The status arrives last, because the server sends it after the process has ended.
            while self._status in waiting:
                remaining_s = begin + limit_s - time.monotonic()
                ready = selector.select(max(remaining_s, 0.0))
                if not ready:
                    return Ended(b"", "the judge's server does not answer")
                for key, _ in ready:
                    if key.fd == self._request_fd:
                        unsent = self._write(selector, unsent)
                        continue
                    part = os.read(key.fd, 1 << 20)
                    if not part:
                        selector.unregister(key.fd)
                        waiting.discard(key.fd)
                        continue
                    if key.fd == self._answer and len(received[key.fd]) + len(part) > most_bytes:
                        # The caller closes the status pipe, which makes the server kill the process.
                        how, wall_s = "it sent more bytes than its result has", time.monotonic() - begin
                        return Ended(bytes(received[key.fd]), how, wall_s=wall_s)
                    received[key.fd] += part
                    if key.fd == self._errors:
                        del received[key.fd][:-_STDERR]
            self._drain(waiting, received, most_bytes)
        return self._ended(received, begin)

    def _drain(self, waiting: set[int], received: dict[int, bytearray], most_bytes: int) -> None:
        """Reads the bytes that an ended process left in its pipes."""
        for descriptor in waiting - {self._status}:
            with contextlib.suppress(BlockingIOError):
                while (part := os.read(descriptor, 1 << 20)) and len(received[descriptor]) < most_bytes:
                    received[descriptor] += part

    def _write(self, selector: selectors.BaseSelector, unsent: memoryview) -> memoryview:
        try:
            unsent = unsent[os.write(self._request_fd, unsent[: 1 << 20]) :]
        except BlockingIOError:
            return unsent
        except BrokenPipeError:
            unsent = unsent[:0]
        if not unsent:
            selector.unregister(self._request_fd)
            self._ends.close(self._request_fd)
        return unsent

    def _ended(self, received: dict[int, bytearray], begin: float) -> Ended:
        complaints = received[self._errors].decode("utf-8", "replace").strip()
        wall_s = time.monotonic() - begin
        try:
            status: Any = json.loads(bytes(received[self._status]))
            code, cpu_s, late = int(status["code"]), float(status["cpu_s"]), bool(status["late"])
        except (ValueError, TypeError, KeyError):
            return Ended(b"", "the judge's server ended", complaints, 0.0, wall_s)
        if late:
            how = "its time was up"
        elif code < 0:
            how = f"it ended by {_signal_name(-code)}"
        else:
            how = f"it ended with exit code {code}" if code else ""
        return Ended(bytes(received[self._answer]), how, complaints, cpu_s, wall_s)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
