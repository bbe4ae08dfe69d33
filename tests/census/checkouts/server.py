"""Processes that hold Triton and Silo imported, and fork one process for each run of a kernel.

``python -m tests.census.checkouts.server compiled|interpreted`` reads requests from its input, a line of JSON each, and
answers each with a line when its process has ended. Importing takes longer than most kernels.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from .worker import main as run_worker

__all__ = ["Server"]

_ROOT = Path(__file__).resolve().parents[3]
_MODULES = {
    "compiled": (
        "triton.language",
        "silo.kinds.triton.cpu.cpu_compiler",
        "silo.drivers.cpu.levels",
        "silo.launch.cpu_objects",
        "silo.kinds.triton.front.triton_source",
        "silo.store.trust_ledger",
    ),
    "interpreted": ("triton.language", "triton.runtime.interpreter", "tests.fuzz.functions", "tests.fuzz.repairs"),
}
_PAUSE_S = 0.01


class Server:
    """The client's side of one server, which runs one process at a time."""

    def __init__(self, kind: str) -> None:
        paths = [str(_ROOT), str(_ROOT / "src"), *os.environ.get("PYTHONPATH", "").split(":")]
        own = {
            "PYTHONPATH": ":".join(path for path in paths if path),
            "TRITON_INTERPRET": str(int(kind == "interpreted")),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.server", kind],
            cwd=_ROOT, env={**os.environ, **own}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, way: str, request: Path, log: Path, seconds: float, variables: dict[str, str]) -> int | None:
        """The exit status of ``worker.main([way, request])`` (negative: a signal), or None after ``seconds``."""
        asked = {"way": way, "request": str(request), "log": str(log), "seconds": seconds, "variables": variables}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server of workers ended with {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """End the server."""
        self._process.communicate()


def serve(kind: str) -> None:
    """Answer requests until the input ends."""
    for name in _MODULES[kind]:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        process = os.fork()
        if not process:
            _child(asked)
        print(json.dumps(_status(process, asked["seconds"])), file=answers, flush=True)


def _child(asked: dict[str, Any]) -> None:
    """Run one worker in this process, and end it."""
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(asked["variables"])
    status = 1
    try:
        run_worker([asked["way"], asked["request"]])
        status = 0
    except BaseException:  # noqa: BLE001 - the traceback is the answer, and the process ends here
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _status(process: int, seconds: float) -> int | None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_PAUSE_S)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


if __name__ == "__main__":
    serve(sys.argv[1])
