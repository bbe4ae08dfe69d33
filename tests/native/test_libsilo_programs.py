"""Programs in C that use libsilo: under the sanitizers, loaded a hundred times, found by CMake and pkg-config."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import libsilo
from made_plans import write_plans
from native_builds import ADDRESS, CORE, THREAD, archive

HERE = Path(__file__).parent
NATIVE = CORE.parent
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
KERNELS = "16"
PUBLIC = {
    "silo_close",
    "silo_bundle_plan",
    "silo_code_name",
    "silo_error_clear",
    "silo_explain",
    "silo_find",
    "silo_free",
    "silo_identity",
    "silo_kernel_count",
    "silo_kernel_name",
    "silo_launch",
    "silo_open",
    "silo_open_memory",
    "silo_parameter_count",
    "silo_parameter_name",
    "silo_plan_add",
    "silo_plan_begin",
    "silo_plan_call",
    "silo_plan_close",
    "silo_plan_count",
    "silo_plan_explain",
    "silo_plan_name",
    "silo_plan_parameter_count",
    "silo_plan_parameter_name",
    "silo_plan_run",
    "silo_version",
    "silo_warmup",
}


def tool(name):
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on this machine")
    return found


def run(*words, timeout=240, **environment):
    without = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        env=without | environment,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_plans(tmp_path_factory.mktemp("made") / "made.silo")


@pytest.mark.parametrize("flags", [ADDRESS, THREAD], ids=["address", "thread"])
def test_sanitized(made, tmp_path, flags):
    program = tmp_path / "check"
    words = (*flags, f"-I{CORE}", HERE / "libsilo_check.c", archive(flags))
    run(tool("gcc"), *words, "-o", program, "-ldl", "-lm", "-pthread")
    # Children of a program with threads are none of ThreadSanitizer's.
    fork = "no fork" if flags == THREAD else "fork"
    output = run(program, made, fork, ASAN_OPTIONS="detect_leaks=1", TSAN_OPTIONS="halt_on_error=1")
    assert output == "good\n"


def test_loaded_a_hundred_times(made, tmp_path):
    compiler = tool("gcc")
    run(compiler, *STRICT, f"-I{CORE}", HERE / "libsilo_load.c", "-o", tmp_path / "load", "-ldl")
    assert run(tmp_path / "load", libsilo.library_file(), made) == "good\n"


def test_plain_cc_builds_it(tmp_path):
    """Every file as a compiler takes it by itself: nothing has to be defined."""
    compiler = tool("cc")
    sources = sorted(CORE.glob("*.c"))
    run(compiler, "-fsyntax-only", *sources)


PROGRAM = """
#include <silo.h>
#include <stdio.h>
int main(int count, char **words) {
    silo_bundle *bundle;
    silo_error error;
    if (count < 2 || silo_open(words[1], NULL, &bundle, &error) != 0)
        return 1;
    printf("%zu %s\\n", silo_kernel_count(bundle), silo_version());
    silo_close(bundle);
    return 0;
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(found C CXX)
find_package(silo 0.1 REQUIRED)
add_executable(shared main.c)
target_link_libraries(shared silo::silo)
add_executable(static main.c)
target_link_libraries(static silo::static)
configure_file(main.c main.cpp COPYONLY)
add_executable(cpp ${CMAKE_CURRENT_BINARY_DIR}/main.cpp)
target_link_libraries(cpp silo::silo)
"""


def test_built_installed_and_found(made, tmp_path):
    cmake, make = tool("cmake"), tool("ninja")
    built, prefix = tmp_path / "build", tmp_path / "moved" / "prefix"
    run(cmake, "-S", NATIVE, "-B", built, "-G", "Ninja", "-DCMAKE_C_FLAGS=-Werror", "-DCMAKE_INSTALL_LIBDIR=lib")
    run(make, "-C", built, timeout=300)
    run(cmake, "--install", built, "--prefix", prefix)
    library = prefix / "lib" / "libsilo.so"
    listed = run(tool("nm"), "-D", "--defined-only", library).splitlines()
    assert {line.split()[-1].partition("@")[0] for line in listed} == PUBLIC
    assert "NODELETE" in run(tool("readelf"), "-d", library)
    loose = {
        line.split()[-1]
        for line in run(tool("nm"), "--defined-only", "-g", prefix / "lib" / "libsilo.a").splitlines()
        if len(line.split()) == 3
    }
    assert {name for name in loose if not name.startswith("silo_")} == set()
    (tmp_path / "use").mkdir()
    (tmp_path / "use" / "main.c").write_text(PROGRAM)
    (tmp_path / "use" / "CMakeLists.txt").write_text(PROJECT)
    found = tmp_path / "found"
    run(cmake, "-S", tmp_path / "use", "-B", found, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run(make, "-C", found)
    for name in ("shared", "static", "cpp"):
        count, version = run(found / name, made).split()
        assert (count, version) == (KERNELS, "0.1")
    words = run(tool("pkg-config"), "--cflags", "--libs", "silo", PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig"))
    program = tmp_path / "program"
    run(tool("gcc"), *STRICT, tmp_path / "use" / "main.c", *words.split(), "-o", program)
    assert run(program, made, LD_LIBRARY_PATH=str(prefix / "lib")).split()[0] == KERNELS
