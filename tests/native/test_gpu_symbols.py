"""The table of the functions of GPU drivers, from which both drivers are loaded."""

import ctypes
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from samples import core_native, gpu_stub

HERE = Path(__file__).parent
UNITS = ("cuda_driver", "hip_driver", "gpu_library", "loader_lock")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The rows (driver, slot, place, need, name), printed by a program that has tried to load without each of them."""
    program = tmp_path_factory.mktemp("symbols") / "check"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-Ddlsym=silo_test_dlsym"]
    sources = [HERE / "symbols_check.c", *(core_native.NATIVE / f"{unit}.c" for unit in UNITS)]
    compiler = core_native.compiler("gcc")
    command = [compiler, *flags, f"-I{core_native.NATIVE}", *map(str, sources), "-o", str(program), "-ldl", "-pthread"]
    subprocess.run(command, check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [tuple(line.split()) for line in done.stdout.splitlines()]


def test_every_function_is_looked_up_once_and_its_lack_is_told(rows):
    functions = [row for row in rows if len(row) == 5]
    looked_up = {row[0]: int(row[-1]) for row in rows if row[1] == "asks"}
    assert Counter(row[0] for row in functions) == looked_up
    assert not [name for name, count in Counter(row[4] for row in functions).items() if count > 1]
    assert {row[3] for row in functions} == {"NEEDED", "OPTIONAL"}


def test_the_stub_has_every_function_that_is_needed(rows):
    stub = ctypes.CDLL(str(gpu_stub.library()))
    needed = [row[4] for row in rows if row[3] == "NEEDED"]
    assert len(needed) > 70
    assert [name for name in needed if not hasattr(stub, name)] == []
