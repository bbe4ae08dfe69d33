"""Runs kernels under Triton's interpreter, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from .program import Kernel

__all__ = ["Interpreter", "InterpreterError"]


class InterpreterError(Exception):
    """The interpreter refused a kernel; the message is its reason."""


class Interpreter:
    """A process that interprets. Whether Triton interprets is decided when it is imported, so it cannot be this one."""

    def __init__(self, functions: Path) -> None:
        here = Path(__file__).resolve().parents[1]
        source = here.parent / "src"
        paths = [str(here), *([str(source)] if source.is_dir() else []), *os.environ.get("PYTHONPATH", "").split(":")]
        environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": ":".join(path for path in paths if path)}
        environment["OMP_NUM_THREADS"] = environment["OPENBLAS_NUM_THREADS"] = "1"
        self._words = [sys.executable, "-m", "fuzz.interpreter_worker", str(functions)]
        self._environment = environment
        self._process = self._start()
        self._serial = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment)

    def run(self, kernel: Kernel, filled: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The storages after a run on copies of ``filled``.

        Raises:
            InterpreterError: the interpreter refused the kernel, or its process ended.
        """
        self._serial += 1
        request = {
            "serial": self._serial,
            "source": kernel.text(),
            "grid": kernel.grid,
            "parameters": [
                {
                    "name": parameter.name,
                    "kind": parameter.kind,
                    "storage": parameter.storage,
                    "start": kernel.start(parameter) if parameter.pointer else 0,
                    "value": parameter.value,
                }
                for parameter in kernel.parameters
            ],
            "storages": [
                {"name": name, "dtype": array.dtype.name, "elements": int(array.size)} for name, array in filled.items()
            ],
        }
        pipes = self._process
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        try:
            pipes.stdin.write(json.dumps(request).encode() + b"\n")
            for array in filled.values():
                pipes.stdin.write(array.tobytes())
            pipes.stdin.flush()
            line = pipes.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            pipes.kill()
            self._process = self._start()
            raise InterpreterError(f"the interpreter's process ended with {pipes.wait()}")
        found = {name: np.frombuffer(pipes.stdout.read(array.nbytes), array.dtype) for name, array in filled.items()}
        reason = json.loads(line)["error"]
        if reason:
            raise InterpreterError(reason)
        return found

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
