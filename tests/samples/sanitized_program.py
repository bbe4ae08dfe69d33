"""C programs built with the compiler's sanitizers; a test is skipped if the sanitizers are missing or cannot run."""

import os
import subprocess
from pathlib import Path

import pytest


def build_sanitized(program: Path, *command: str | Path) -> Path:
    """Build ``program`` by the compiler's ``command``; the test fails on a warning that is an error."""
    words = [*map(str, command), "-o", str(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "cannot find" in done.stderr and "san" in done.stderr:
        pytest.skip("the sanitizers' libraries are not installed")
    assert done.returncode == 0, done.stderr[-3000:]
    return program


def run_sanitized(program: Path, *words: str | Path, timeout_s: float = 240, **environment: str) -> str:
    """Run a program that must exit with 0, and return its output; ``environment`` is added to this process's."""
    done = subprocess.run(
        [str(program), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env=os.environ | environment,
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address layout is none that ThreadSanitizer knows")
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout
