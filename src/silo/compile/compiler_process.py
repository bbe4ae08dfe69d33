"""Compilers as child processes: they end when this process ends, in whatever way, and their memory is limited.

A compiler driver starts further programs (``cc1``, ``as``, ``ld``), which would survive if only the driver were killed.
So each compile gets a process group. The leader of the group is a **keeper**: a shell that waits for the end of a pipe
whose other end only this process has. If this process dies, even by ``SIGKILL``, the pipe ends, and the keeper kills
its own group. As long as the keeper lives, the group's number cannot be reused, so no other group can be killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from silo.settings import settings

__all__ = ["compiler_process", "end_group_with_this_process", "memory_note", "run_compiler"]

_SHELL = "/bin/sh"
_KEEP = "read _; kill -KILL 0"
# Limits the memory of the compiler and of all programs that it starts. A lower limit of the system stays.
_LIMIT = 'ulimit -v "$0" 2>/dev/null; exec "$@"'
_SAID_OF_MEMORY = ("out of memory", "memory exhausted", "Cannot allocate memory", "bad_alloc", "memory allocation")

# The keepers that wait for this process to end, each with the end of its pipe that this process holds.
_kept: list[tuple[subprocess.Popen[bytes], int]] = []


@contextmanager
def compiler_process(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    stdout: IO[bytes] | int = subprocess.DEVNULL,
    cwd: str | Path | None = None,
) -> Generator[subprocess.Popen[bytes]]:
    """Starts a compiler, whose messages go to a pipe; kills it and all its child processes at the end of the block.

    In a child that was forked within the block, the end of the block does nothing: the compiler belongs to the parent.

    Raises:
        FileNotFoundError: the command does not exist.
        OSError: it cannot be run.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    maker, byte_limit = os.getpid(), settings().compile_bytes
    limited = [_SHELL, "-c", _LIMIT, str(byte_limit >> 10), *command] if byte_limit else [*command]
    reading, writing = os.pipe()
    try:
        keeper = _keeper(reading, lead=True)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        process = subprocess.Popen(
            limited,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(env),
            process_group=keeper.pid,
        )
        with process:
            try:
                yield process
            finally:
                if os.getpid() == maker:
                    _kill_group(keeper)
    finally:
        os.close(writing)
        if os.getpid() == maker:
            _kill_group(keeper)
            keeper.wait()
        else:
            keeper.returncode = 0  # marks it as finished, because only the parent process may wait for it


def run_compiler(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    stdout: IO[bytes] | int = subprocess.PIPE,
    cwd: str | Path | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Runs a compiler to its end, like :func:`compiler_process`, and raises the same errors."""
    with compiler_process(command, env=env, stdin=stdin, stdout=stdout, cwd=cwd) as process:
        output, messages = process.communicate()
        return subprocess.CompletedProcess([*command], process.returncode, output, messages)


def memory_note(log: str) -> str:
    """Returns a note for the error of a compiler that ran out of memory, with its limit; "" for any other error."""
    cap = settings().compile_bytes
    if not cap or not any(word in log for word in _SAID_OF_MEMORY):
        return ""
    return (
        f"\nA compiler may take {cap >> 20} MiB of address space: set SILO_COMPILE_BYTES to more (8G), or to 0 for no "
        "ceiling, if the machine has the memory; or make the kernel smaller."
    )


def end_group_with_this_process() -> None:
    """Makes this process's group end when this process ends. Call it once, in the leader of the group.

    The group also includes compilers that other code starts, for example Triton.
    """
    reading, writing = os.pipe()
    try:
        _kept.append((_keeper(reading, lead=False), writing))
    finally:
        os.close(reading)


def _keeper(reading: int, *, lead: bool) -> subprocess.Popen[bytes]:
    """Starts a shell that kills its process group once no process has the writing end of the pipe ``reading`` open.

    ``lead``: the shell leads a new group; otherwise it is in this process's group.
    """
    return subprocess.Popen(
        [_SHELL, "-c", _KEEP],
        stdin=reading,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        process_group=0 if lead else None,
    )


def _kill_group(keeper: subprocess.Popen[bytes]) -> None:
    # Nobody has waited for the keeper yet, so its process group number is still taken, and this kills no other group.
    if keeper.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(keeper.pid, signal.SIGKILL)
