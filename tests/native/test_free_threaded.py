"""The source of a build for Python without a GIL: compile-checked here, run where such a Python is."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
SOURCES = sorted(NATIVE.glob("*/*.c"))


@pytest.mark.parametrize("source", SOURCES, ids=[source.stem for source in SOURCES])
def test_the_source_compiles_without_a_gil(source):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    command = [
        *(compiler, "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-DPy_GIL_DISABLED"),
        *("-I", str(NATIVE / "core"), "-I", sysconfig.get_paths()["include"]),
        *("-include", str(Path(__file__).parent / "free_threaded.h")),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
