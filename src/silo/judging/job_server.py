"""The server of the judge's jobs: ``python -m silo.judging.job_server FD``, started only by ``job_processes``.

It imports the modules of jobs, then forks a child for each job. It runs no code of a candidate itself, has one thread,
and ends with the process that started it.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable

from silo.compile.worker_serving import die_with_parent
from silo.errors import SiloError
from silo.frozen import frozen
from silo.judging.confinement import private_files

__all__ = ["main"]

Job = Callable[[int, int], None]


def _jobs() -> dict[str, Job]:
    """Returns the function of each kind of job. Imports everything that the functions need, before the first fork."""
    from silo.judging.candidate_process import lower_candidate, warm_up  # noqa: PLC0415  # after the process is set up
    from silo.judging.kernel_process import build_once, compiler_places, run_kernel  # noqa: PLC0415

    for kind, variant in warm_up():
        build_once(kind, variant)
    # The results of these two functions are cached, so children need not compute them.
    private_files()
    compiler_places()
    return {"candidate": lower_candidate, "kernel": run_kernel}


@frozen
class _Child:
    """A running child: its descriptor for polling, the pipe for its status, and the time at which it is killed."""

    pid: int
    handle: int
    status: int
    deadline: float


def main(arguments: list[str]) -> None:
    """Serves jobs until the other end of the control socket is closed."""
    # When the judge's process ends, this socket is closed, and this server ends. A parent-death signal would not do:
    # Linux sends it as soon as the *thread* that started this process ends.
    control = socket.socket(fileno=int(arguments[0]))
    try:
        jobs = _jobs()
    except SiloError as error:
        control.send(f"{type(error).__name__}: {error}".encode()[:4000])
        return
    gc.collect()
    gc.freeze()  # collecting garbage in a child would write to pages that it shares with this process
    control.send(b"ready")
    children: list[_Child] = []
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        now = time.monotonic()
        soonest = min((child.deadline for child in children), default=now + 3600)
        events = {descriptor for descriptor, _ in poll.poll(max(0, int((soonest - now) * 1000) + 1))}
        now = time.monotonic()
        # Ended children are handled first, because a new child may get their descriptor numbers.
        for ready_child in tuple(children):
            ended = ready_child.handle in events
            if ended or ready_child.status in events or ready_child.deadline <= now:
                children.remove(ready_child)
                poll.unregister(ready_child.handle)
                poll.unregister(ready_child.status)
                _report(ready_child, timed_out=not ended)
        if control.fileno() in events:
            child = _accept(control, jobs)
            if child is None:
                break
            children.append(child)
            poll.register(child.handle, select.POLLIN)
            poll.register(
                child.status, 0
            )  # polled for errors only: an error means that the judge no longer waits for this job
    for ready_child in children:
        _report(ready_child, timed_out=True)


def _accept(control: socket.socket, jobs: dict[str, Job]) -> _Child | None:
    """Starts the next job. Returns None at the end of the control socket."""
    text, descriptors, _, _ = socket.recv_fds(control, 4096, 4)
    if not text:
        return None
    request = json.loads(text)
    request_pipe, answer, errors, status = descriptors
    pid = os.fork()
    if not pid:
        _run(jobs[request["kind"]], request_pipe, answer, errors)
    for descriptor in (request_pipe, answer, errors):
        os.close(descriptor)
    return _Child(pid, os.pidfd_open(pid), status, time.monotonic() + float(request["wall_s"]))


def _run(job: Job, request_fd: int, answer: int, errors: int) -> None:
    """Runs a job in the child, and exits; never returns."""
    code = 1
    try:
        die_with_parent()
        os.setsid()
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        job(request_fd, answer)
        code = 0
    except BaseException:  # noqa: BLE001  # the child must not go on as the server
        traceback.print_exc()
    finally:
        os._exit(code)


def _report(child: _Child, *, timed_out: bool) -> None:
    """Reaps a child and sends how it ended. A ``timed_out`` child is killed first."""
    if timed_out:
        signal.pidfd_send_signal(child.handle, signal.SIGKILL)
    _, code, usage = os.wait4(child.pid, 0)
    os.close(child.handle)
    cpu_s = usage.ru_utime + usage.ru_stime
    text = json.dumps({"code": os.waitstatus_to_exitcode(code), "cpu_s": cpu_s, "late": timed_out}).encode()
    try:
        os.write(child.status, text)
    except BrokenPipeError:
        pass  # the judge no longer waits for this job
    finally:
        os.close(child.status)


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # skips Python's clean-up at exit, during which some libraries print errors
