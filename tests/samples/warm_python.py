"""Runs Python programs of tests in children of one process that has imported what most programs import.

:func:`run` has the interface of ``subprocess.run`` for ``[sys.executable, ...]``. The program finds a process like a
new one: its own arguments, variables, folder, standard streams, warning filters, import path and ``__main__``, no
thread, no setting of Silo read, nothing of Triton, torch or jax imported. It ends as under the interpreter: at its last
line, by ``sys.exit``, by an exception or by a signal. There are three differences from a new process: :data:`PRELOADED`
and everything that these modules import are in ``sys.modules``, hashes of strings are the same in all programs, and
captured output goes to a file instead of a pipe. Tests of imports, cold starts, forks, signals, leaks and faults start
processes with ``subprocess``; a program whose own text looks at these gets a process of its own in any case.

A program that cannot run in such a child gets a process of its own; :func:`why_fresh` returns the reason.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["PRELOADED", "TORCH", "TRITON", "run", "why_fresh"]

PRELOADED = ("numpy", "pytest", "silo.kernels.bundle_kernels", "silo.cli.main", "silo.launch.native")
TORCH = ("torch",)
"""``more`` for programs that import torch at their beginning: the import takes longer than most of them run."""
TRITON = (*TORCH, "triton_ready")
"""``more`` for programs that also launch Triton kernels."""
_ROOT = Path(__file__).resolve().parents[2]
# Prefixes of variables that are read when a process starts or a library is loaded. Others are read when needed.
_EARLY = ("ASAN_", "GOMP_", "GOTO_", "KMP_", "LD_", "MALLOC_", "MKL_", "NPY_", "OMP_", "OPENBLAS_", "PYTHON", "UBSAN_")
# handled: a child makes its import path anew, and each library path has its own warm process
_OBEYED = ("PYTHONPATH", "LD_LIBRARY_PATH")
# A program whose text contains one of these looks at the imports, time or memory of its process.
_LOOKS_INSIDE = ("sys.modules", "/proc/self", "resource.", "tracemalloc", "perf_counter", "process_time", "gc.")


@dataclass(frozen=True)
class _Program:
    """The words after ``python``: warning filters, how the program is named, its name or text, its arguments."""

    filters: tuple[str, ...]
    kind: str
    """``-c``, ``-m``, or "" for a file."""
    name: str
    arguments: tuple[str, ...]


def _program(words: Sequence[str]) -> _Program | None:
    """Parse the words after ``python``; None for an option that only a process of its own can obey."""
    rest, filters = list(words), []
    while rest[:1] == ["-W"] and len(rest) > 1:
        filters.append(rest[1])
        rest = rest[2:]
    if rest[:1] in (["-c"], ["-m"]) and len(rest) > 1:
        return _Program(tuple(filters), rest[0], rest[1], tuple(rest[2:]))
    if rest and rest[0].endswith(".py") and not rest[0].startswith("-"):
        return _Program(tuple(filters), "", rest[0], tuple(rest[1:]))
    return None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def why_fresh(words: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> str | None:
    """Return why a program that starts in ``folder`` needs a process of its own; None if a warm child can run it."""
    if sys.platform != "linux":
        return "children of the warm process are for Linux"
    if words[0] != sys.executable:
        return f"{words[0]} is not the Python of this process"
    program = _program(words[1:])
    if program is None:
        return f"Python's options in {' '.join(words[1:3])} need a process of their own"
    text = (
        "" if program.kind == "-m" else program.name if program.kind else _text((folder or Path.cwd()) / program.name)
    )
    for part in _LOOKS_INSIDE:
        if part in text:
            return f"the program uses {part}"
    for name in sorted({*environment, *os.environ}):
        if name.startswith(_EARLY) and name not in _OBEYED and environment.get(name) != os.environ.get(name):
            return f"{name} is read when a process starts"
    for place in filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)):
        for package in sorted({name.partition(".")[0] for name in PRELOADED}):
            found = Path(place, package)
            if found.exists() and found.resolve() != (_ROOT / "src" / package).resolve():
                return f"{place} has a {package} of its own"
    return None


def run(
    words: Sequence[str | os.PathLike[str]],
    *,
    input: str | bytes | None = None,  # noqa: A002  # as subprocess.run has it
    capture_output: bool = False,
    text: bool = False,
    check: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    more: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[Any]:
    """Run a Python program to its end, as ``subprocess.run`` does with the same arguments.

    ``more`` names modules that the warm process imports besides :data:`PRELOADED`.
    """
    command = [os.fspath(word) for word in words]
    environment = dict(os.environ if env is None else env)
    folder = Path.cwd() if cwd is None else Path(cwd)
    if why_fresh(command, environment, folder) is not None:
        options: dict[str, Any] = {"input": input, "capture_output": capture_output, "text": text, "timeout": timeout}
        return subprocess.run(command, check=check, env=environment, cwd=cwd, **options)
    wanted = {"words": command[1:], "variables": environment, "folder": str(folder.absolute())}
    with contextlib.ExitStack() as open_files:

        def file(data: bytes = b"") -> Any:
            made = open_files.enter_context(os.fdopen(os.memfd_create("program"), "r+b", buffering=0))
            made.write(data)
            made.seek(0)
            return made

        given = b"" if input is None else input.encode() if isinstance(input, str) else input
        streams: list[Any] = [file(given) if input is not None else 0, 1, 2]
        if capture_output:
            streams[1:] = [file(), file()]
        # by process id, so that a forked child starts its own server
        server = _server_of(os.getpid(), more, environment.get("LD_LIBRARY_PATH"))
        status = server.ended(file(json.dumps(wanted).encode()), streams, timeout)
        output: list[Any] = [None, None]
        if capture_output:
            for place, stream in enumerate(streams[1:]):
                stream.seek(0)
                data = stream.read()
                output[place] = data.decode().replace("\r\n", "\n") if text else data
    if status is None:
        raise subprocess.TimeoutExpired(command, timeout or 0, *output)
    done = subprocess.CompletedProcess(command, status, *output)
    if check:
        done.check_returncode()
    return done


class _Server:
    """The test's connection to a warm process."""

    def __init__(self, more: Sequence[str], libraries: str | None) -> None:
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = [str(_ROOT / "src"), str(_ROOT / "tests" / "samples"), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        variables.pop("LD_LIBRARY_PATH", None)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(other.fileno()), *more],
                env=variables if libraries is None else {**variables, "LD_LIBRARY_PATH": libraries},
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
            )
        if self._channel.recv(16) != b"ready":
            message = f"the warm Python could not start: exit status {self._process.wait()}"
            raise RuntimeError(message)

    def ended(self, wanted: Any, streams: Sequence[Any], timeout: float | None) -> int | None:
        """Run a program; return its exit status as ``subprocess`` does, or None if it was killed after ``timeout``."""
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with mine:
            with its:
                socket.send_fds(self._channel, [b"run"], [wanted.fileno(), *map(_number, streams), its.fileno()])
            number = int(mine.recv(32))
            ready = select.poll()  # select.select refuses descriptors from 1,024 on
            ready.register(mine, select.POLLIN)
            if not ready.poll(None if timeout is None else timeout * 1000):
                os.kill(number, signal.SIGKILL)
                mine.recv(32)
                return None
            said = mine.recv(32)
        if not said:
            raise RuntimeError("the warm Python ended while a program ran")
        return int(said)


def _number(stream: Any) -> int:
    return stream if isinstance(stream, int) else stream.fileno()


@functools.cache
def _server_of(process: int, more: tuple[str, ...], libraries: str | None) -> _Server:
    return _Server(more, libraries)


# -- in the warm process ---------------------------------------------------------------------------------------------


def _serve(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Start a child for each request and report how it ended.

    Returns in each child, with its request and streams; in the warm process returns None when the tests have ended.
    """
    # maps a child's descriptor to its process id and the descriptor that reports its end
    running: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not channel:
                    number, tell = running.pop(key.fd)
                    selector.unregister(key.fd)
                    _tell(tell, os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]))
                    os.close(key.fd)
                    os.close(tell)
                    continue
                said, descriptors, _, _ = socket.recv_fds(channel, 16, 5)
                if not said:
                    return None
                number = os.fork()
                if number == 0:
                    with os.fdopen(descriptors[0], "rb") as file:
                        wanted = json.loads(file.read())
                    return wanted, descriptors[1:4]
                for descriptor in descriptors[:4]:
                    os.close(descriptor)
                _tell(descriptors[4], number)
                child = os.pidfd_open(number)
                running[child] = (number, descriptors[4])
                selector.register(child, selectors.EVENT_READ)


def _tell(descriptor: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the test may have ended
        os.write(descriptor, str(number).encode())


def _prepare(wanted: dict[str, Any], streams: list[int], base_path: list[str]) -> _Program:
    """Make this child like a new process that is about to run the program."""
    for place, descriptor in enumerate(streams):
        os.dup2(descriptor, place)
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number > 2:
            with contextlib.suppress(OSError):  # the descriptor that listed them is already closed
                os.close(number)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["variables"])
    program = _program(wanted["words"])
    assert program is not None
    sys.orig_argv = [sys.executable, *wanted["words"]]
    sys.argv = [program.kind or program.name, *program.arguments]
    first = {"-c": "", "-m": wanted["folder"], "": str(Path(program.name).resolve().parent)}[program.kind]
    sys.path[:] = [first, *filter(None, wanted["variables"].get("PYTHONPATH", "").split(os.pathsep)), *base_path]
    importlib.invalidate_caches()
    sys.warnoptions[:] = program.filters
    warnings._processoptions(program.filters)  # pyright: ignore[reportAttributeAccessIssue]  # as at the start
    sys.modules["numpy"].random.seed()
    return program


def _execute(program: _Program) -> None:
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    try:
        if program.kind == "-m":
            runpy._run_module_as_main(program.name)  # pyright: ignore[reportAttributeAccessIssue]  # what -m does
        elif program.kind == "-c":
            exec(compile(program.name, "<string>", "exec"), main.__dict__)
        else:
            path = Path.cwd() / program.name
            main.__dict__.update(__file__=str(path), __cached__=None)
            exec(compile(path.read_bytes(), path, "exec"), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001  # as the interpreter at the end of a program
        trace = error.__traceback__
        sys.excepthook(type(error), error.with_traceback(trace and trace.tb_next), trace and trace.tb_next)
        if isinstance(error, KeyboardInterrupt):
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        raise SystemExit(1) from None


def _main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    own = os.environ["PYTHONPATH"].split(os.pathsep)
    base_path = [folder for folder in sys.path if folder not in (*own, str(Path(__file__).parent))]
    more = sys.argv[2:]
    importlib.import_module("kept_objects").install()
    for name in (*PRELOADED, *more):
        importlib.import_module(name)
    asked = {*more, "triton"} if "triton_ready" in more else {*more}
    early = {name.partition(".")[0] for name in sys.modules} & {"jax", "torch", "triton"} - asked
    assert not early, f"{sorted(early)} are imported before a program asks"
    assert sys.modules["silo.settings"]._current is None, "settings are read before a program sets its variables"
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()  # the garbage collector then neither visits nor copies the objects of the imported modules
    channel.send(b"ready")
    child = _serve(channel)
    if child is not None:
        channel.detach()
        _execute(_prepare(*child, base_path))


if __name__ == "__main__":
    _main()
