"""Drivers, devices, loaded code and scratch memory without Python: a C program on the stub driver, sanitized."""

from pathlib import Path

import pytest

from native_builds import ADDRESS, CORE, THREAD, archive
from samples import core_native, gpu_stub
from sanitized_program import build_sanitized, run_sanitized

HERE = Path(__file__).parent


def build(folder, flags):
    words = (*flags, f"-I{CORE}", HERE / "code_check.c", archive(flags), "-ldl", "-lm", "-pthread")
    return build_sanitized(folder / "check", core_native.compiler("gcc"), *words)


def run(program, *words):
    # What stays loaded on purpose, and a driver's own memory, is no leak.
    environment = gpu_stub.environment(devices=2, ASAN_OPTIONS="detect_leaks=0", UBSAN_OPTIONS="halt_on_error=1")
    assert run_sanitized(program, gpu_stub.library(), *words, timeout_s=240, **environment) == "done\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("code"), ADDRESS)


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_code_is_loaded_limited_counted_and_unloaded_without_python(program, kind):
    run(program, kind)


def test_threads_that_load_and_let_go_of_code_at_one_time_have_no_race(tmp_path):
    program = build(tmp_path, THREAD)
    for kind in ("cuda", "hip"):
        run(program, kind, "threads")
