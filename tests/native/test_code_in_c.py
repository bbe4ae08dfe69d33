"""Drivers, devices, loaded code and scratch memory without Python: a C program on the stub driver, sanitized."""

import subprocess
from pathlib import Path

import pytest

from samples import core_native, gpu_stub

HERE = Path(__file__).parent
UNITS = ("binary", "device", "scratch", "error", "cuda", "hip", "gpu_forked", "gpu_library", "memory_types")


def build(folder, sanitizer):
    built = folder / "check"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", f"-fsanitize={sanitizer}", "-Wall", "-Wextra", "-Werror"]
    sources = [HERE / "code_check.c", *(core_native.NATIVE / f"{unit}.c" for unit in UNITS)]
    sources += sorted(core_native.NATIVE.glob("cpu_*.c"))
    command = [core_native.compiler("gcc"), *flags, f"-I{core_native.NATIVE}", *map(str, sources), "-o", str(built)]
    done = subprocess.run([*command, "-ldl", "-pthread"], capture_output=True, text=True, check=False)
    if "cannot find" in done.stderr and "san" in done.stderr:
        pytest.skip("gcc has no sanitizers here")
    assert done.returncode == 0, done.stderr
    return built


def run(program, *words):
    # What stays loaded on purpose, and a driver's own memory, is no leak.
    environment = gpu_stub.environment(devices=2, ASAN_OPTIONS="detect_leaks=0", UBSAN_OPTIONS="halt_on_error=1")
    command = [str(program), str(gpu_stub.library()), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address layout is none that ThreadSanitizer knows")
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr[-3000:]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("code"), "address,undefined")


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_code_is_loaded_limited_counted_and_unloaded_without_python(program, kind):
    run(program, kind)


def test_threads_that_load_and_let_go_of_code_at_one_time_have_no_race(tmp_path):
    program = build(tmp_path, "thread")
    for kind in ("cuda", "hip"):
        run(program, kind, "threads")
