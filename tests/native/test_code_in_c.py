"""Drivers, devices, loaded code and scratch memory without Python: a C program on the stub driver, sanitized."""

from pathlib import Path

import pytest

from samples import core_native, gpu_stub
from sanitized_program import build_sanitized, run_sanitized

HERE = Path(__file__).parent
UNITS = (
    "binary",
    "device",
    "scratch",
    "error",
    "cuda_driver",
    "hip_driver",
    "gpu_forked",
    "gpu_library",
    "loader_lock",
    "memory_types",
)


def build(folder, sanitizer):
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", f"-fsanitize={sanitizer}", "-Wall", "-Wextra", "-Werror"]
    sources = [HERE / "code_check.c", *(core_native.NATIVE / f"{unit}.c" for unit in UNITS)]
    sources += sorted(core_native.NATIVE.glob("cpu_*.c"))
    command = [core_native.compiler("gcc"), *flags, f"-I{core_native.NATIVE}", *sources, "-ldl", "-pthread"]
    return build_sanitized(folder / "check", *command)


def run(program, *words):
    # What stays loaded on purpose, and a driver's own memory, is no leak.
    environment = gpu_stub.environment(devices=2, ASAN_OPTIONS="detect_leaks=0", UBSAN_OPTIONS="halt_on_error=1")
    assert run_sanitized(program, gpu_stub.library(), *words, timeout_s=60, **environment) == "done\n"


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
