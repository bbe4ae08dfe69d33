"""The native module under AddressSanitizer and UndefinedBehaviorSanitizer, through its other tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from core_native import NATIVE, compiler
from fuzz.sanitizers import NoSanitizersError, native_module, stub_driver, variables
from native_builds import ADDRESS, THREAD, archive
from sanitized_program import build_sanitized, run_sanitized

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent

# Runs the tests named on the command line with the module at SILO_TEST_NATIVE in the place of the usual one.
BOOTSTRAP = """
import importlib.util, sys
import silo
spec = importlib.util.spec_from_file_location("silo._native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
sys.modules["silo._native"] = silo._native = native
spec.loader.exec_module(native)
from silo.launch.native import path
assert path() == sys.argv[1]
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def sanitized():
    """The variables under which Python runs with the sanitizers, and the module and the stub driver built for them."""
    try:
        needed, built, stub = variables(), native_module(), stub_driver()
    except NoSanitizersError as error:
        pytest.skip(str(error))
    return {
        **os.environ,
        **needed,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}{os.pathsep}{ROOT / 'tests' / 'samples'}",
        "SILO_TEST_NATIVE": str(built),
        "SILO_TEST_STUB": str(stub),
    }


def run_tests(sanitized, *arguments):
    """Run tests in the place described; pytest loads the module itself, and so do the processes that tests start."""
    command = [sys.executable, "-c", BOOTSTRAP, sanitized["SILO_TEST_NATIVE"], *arguments]
    plugins = [word for name in ("cacheprovider", "xdist", "benchmark") for word in ("-p", f"no:{name}")]
    done = subprocess.run(
        [*command, "-q", "-x", *plugins],
        capture_output=True,
        text=True,
        check=False,
        env=sanitized,
        cwd=ROOT,
        timeout=800,
    )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    assert "100%" in done.stdout


# C code that reads a caller's arguments and files is checked in each run, the rest in scripts/test --all.
READ_FOREIGN = ("guard", "library_code", "buffer", "hostile_arguments", "bundle_reader")
THE_REST = ("arguments", "launcher", "bundle_object", "grid", "xla_call", "cpu_pool", "extents")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("names", [READ_FOREIGN, pytest.param(THE_REST, marks=pytest.mark.all)], ids=["usual", "rest"])
def test_native_tests_pass_under_the_sanitizers(sanitized, names):
    tests = [str(HERE / f"test_{name}.py") for name in names]
    chosen = "not torch and not every_library and not strides and not a_thousand and not hits_allocate"
    chosen += " and not calls_within and not grid_function_frees and not at_the_place"  # own programs; torch; memory
    chosen += " and not may_call_kernels"  # frames are larger there
    chosen += " and not without_libzstd and not without_memory"  # their own programs and libraries
    run_tests(sanitized, *tests, "-k", chosen)


@pytest.mark.all
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_gpu_tests_pass_under_the_sanitizers(sanitized):
    run_tests(sanitized, *sorted(str(path) for path in HERE.glob("test_gpu_*.py")))


def test_every_other_c_file_compiles_without_a_warning(tmp_path):
    gcc = shutil.which("gcc") or shutil.which("cc")
    if gcc is None:
        pytest.skip("needs a C compiler")
    include = [f"-I{NATIVE}", f"-I{sysconfig.get_paths()['include']}"]
    # Those of native/core are compiled so for every test of C (tests/samples/native_builds.py).
    sources = sorted(str(path) for path in (ROOT / "native").glob("*/*.c") if path.parent != NATIVE)
    flags = ["-std=c11", "-O0", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    done = subprocess.run(
        [gcc, *flags, "-DPy_LIMITED_API=0x030b0000", "-D_GNU_SOURCE=1", *include, *sources],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("flags", [THREAD, ADDRESS], ids=["thread", "address"])
def test_plans_on_the_cpu_have_no_data_race_and_no_wrong_access(tmp_path, flags):
    words = (*flags, f"-I{NATIVE}", HERE / "plan_check.c", archive(flags), "-ldl", "-lm", "-pthread")
    program = build_sanitized(tmp_path / "check", compiler("gcc"), *words)
    assert run_sanitized(program) == "done\n"


@pytest.mark.parametrize("flags", [THREAD, ADDRESS], ids=["thread", "address"])
def test_the_pool_has_no_data_race_and_no_wrong_access(tmp_path, flags):
    words = (*flags, f"-I{NATIVE}", HERE / "pool_check.c", archive(flags), "-ldl", "-lm", "-pthread")
    program = build_sanitized(tmp_path / "check", compiler("gcc"), *words)
    assert run_sanitized(program) == "done\n"
