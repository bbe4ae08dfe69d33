"""libsilo for tests: the archive of native/core, and programs in C and C++ linked with it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "native" / "core"
FLAGS = ("-std=c11", "-O1", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-D_GNU_SOURCE")
LIBRARIES = ("-ldl", "-lm", "-pthread")


def compiler(*names: str) -> str:
    """The first of these commands that is here; skips where none is."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"needs {' or '.join(names)}")
    return found


def run(command: Sequence[object], *, cwd: Path | None = None, code: int = 0, timeout: float = 120, **variables: str):
    """Run a command to its end; its exit code must be ``code``."""
    words = [str(word) for word in command]
    environment = {**os.environ, **variables}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == code, f"{' '.join(words)}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@functools.cache
def archive() -> Path:
    """``libsilo.a``, built once a process; every object by a compiler of its own, two at a time."""
    cc = compiler("gcc", "cc")
    folder = Path(tempfile.mkdtemp(prefix="libsilo-"))

    def compiled(source: Path) -> Path:
        output = folder / f"{source.stem}.o"
        run([cc, *FLAGS, "-c", source, "-o", output])
        return output

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sorted(CORE.glob("*.c"))))
    run(["ar", "rcs", folder / "libsilo.a", *objects])
    return folder / "libsilo.a"


def c_program(output: Path, *sources: Path, flags: Sequence[str] = ()) -> Path:
    """A C program with libsilo in it."""
    cc = compiler("gcc", "cc")
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    run([cc, "-std=gnu11", "-O1", *warnings, *flags, f"-I{CORE}", *sources, "-o", output, archive(), *LIBRARIES])
    return output


def loaded_files(command: Sequence[object]) -> str:
    """Everything that the loader of a program's libraries says, files opened while it runs among them."""
    return run(command, LD_DEBUG="files").stderr
