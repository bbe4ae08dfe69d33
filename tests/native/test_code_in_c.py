"""Drivers, devices, loaded code and scratch memory without Python: a C program on the stub driver, sanitized."""

import subprocess
from pathlib import Path

import pytest

from samples import core_native, gpu_stub

HERE = Path(__file__).parent
UNITS = ("binary", "device", "scratch", "error", "cuda", "hip", "gpu_forked", "gpu_library", "memory_types")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    built = tmp_path_factory.mktemp("code") / "check"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    flags += ["-Wall", "-Wextra", "-Werror", f"-I{core_native.NATIVE}"]
    sources = [HERE / "code_check.c", *(core_native.NATIVE / f"{unit}.c" for unit in UNITS)]
    sources += sorted(core_native.NATIVE.glob("cpu_*.c"))
    command = [core_native.compiler("gcc"), *flags, *map(str, sources), "-o", str(built), "-ldl", "-pthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find" in done.stderr and "san" in done.stderr:
        pytest.skip("gcc has no sanitizers here")
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_code_is_loaded_limited_counted_and_unloaded_without_python(program, kind):
    # What stays loaded on purpose, and a driver's own memory, is no leak.
    environment = gpu_stub.environment(devices=2, ASAN_OPTIONS="detect_leaks=0")
    command = [str(program), str(gpu_stub.library()), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr[-3000:]
