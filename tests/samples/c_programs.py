"""Builds and runs programs in C and C++ that are linked with libsilo."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import warm_python
from native_builds import CORE, archive

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("-ldl", "-lm", "-pthread")


def compiler(*names: str) -> str:
    """Return the path of the first of these commands that exists; skip the test if none does."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"needs {' or '.join(names)}")
    return found


def run(command: Sequence[object], *, cwd: Path | None = None, code: int = 0, timeout: float = 240, **variables: str):
    """Run a command, which must exit with ``code``; a Python program runs in a warm process.

    Return the finished process.
    """
    words = [str(word) for word in command]
    environment = {**os.environ, **variables}
    done = warm_python.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=timeout
    )
    assert done.returncode == code, f"{' '.join(words)}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def c_program(output: Path, *sources: Path, flags: Sequence[str] = ()) -> Path:
    """Compile a C program and link it with libsilo; return its path."""
    cc = compiler("gcc", "cc")
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    run([cc, "-std=gnu11", "-O1", *warnings, *flags, f"-I{CORE}", *sources, "-o", output, archive(), *LIBRARIES])
    return output


def loaded_files(command: Sequence[object]) -> str:
    """Run a command; return the dynamic loader's messages about all files, also those opened while it runs."""
    return run(command, LD_DEBUG="files").stderr
