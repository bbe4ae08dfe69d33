"""Compilers as child processes: they end with this process, however it ends, and have a ceiling of memory.

A driver starts compilers of its own (``cc1``, ``as``, ``ld``), so ending the driver ends nothing. Each compile gets a
process group, which a **keeper** leads: a shell that waits for the end of a pipe whose other end only this process has.
If this process dies, by ``SIGKILL`` too, the pipe ends, and the keeper kills the group that it is in. It holds the
number of the group as long as it lives, so no stranger's group is meant.
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
# The ceiling holds for all that the compiler starts. A lower one of the system's stays.
_LIMIT = 'ulimit -v "$0" 2>/dev/null; exec "$@"'
_SAID_OF_MEMORY = ("out of memory", "memory exhausted", "Cannot allocate memory", "bad_alloc", "memory allocation")

# The keepers that wait for the end of this process, with the ends of their pipes.
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
    """Start a compiler, whose messages are a pipe. It and all that it started are killed at the end of the block.

    In a child made by fork inside of the block, the end of the block does nothing: the compiler is the parent's.

    Raises:
        FileNotFoundError: the command does not exist.
        OSError: it cannot be run.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    maker, most = os.getpid(), settings().compile_bytes
    limited = [_SHELL, "-c", _LIMIT, str(most >> 10), *command] if most else [*command]
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
            keeper.returncode = 0  # the parent process waits for it


def run_compiler(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    stdout: IO[bytes] | int = subprocess.PIPE,
    cwd: str | Path | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a compiler to its end, as :func:`compiler_process` starts it. Raises as that does."""
    with compiler_process(command, env=env, stdin=stdin, stdout=stdout, cwd=cwd) as process:
        output, messages = process.communicate()
        return subprocess.CompletedProcess([*command], process.returncode, output, messages)


def memory_note(log: str) -> str:
    """A line for the error of a compiler that ran out of memory, which names its ceiling; "" for any other error."""
    most = settings().compile_bytes
    if not most or not any(word in log for word in _SAID_OF_MEMORY):
        return ""
    return (
        f"\nA compiler may take {most >> 20} MiB of address space: set SILO_COMPILE_BYTES to more (8G), or to 0 for no "
        "ceiling, if the machine has the memory; or make the kernel smaller."
    )


def end_group_with_this_process() -> None:
    """Kill this process's group when it has died. For the leader of a group, once in its life.

    Compilers of others, which Triton starts for example, end with it then.
    """
    reading, writing = os.pipe()
    try:
        _kept.append((_keeper(reading, lead=False), writing))
    finally:
        os.close(reading)


def _keeper(reading: int, *, lead: bool) -> subprocess.Popen[bytes]:
    """A shell that kills its group once nothing holds the other end of ``reading``; ``lead``: a group of its own."""
    return subprocess.Popen(
        [_SHELL, "-c", _KEEP],
        stdin=reading,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        process_group=0 if lead else None,
    )


def _kill_group(keeper: subprocess.Popen[bytes]) -> None:
    # It has not been waited for, so no other process group can have its number.
    if keeper.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(keeper.pid, signal.SIGKILL)
