"""Exports as programs: built from clean folders, checked by their own tests, with no Python in them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import warm_python
from core_native import compiler
from silo.commands.export_bundle import ExportOptions, export_cpp

ROOT = Path(__file__).resolve().parents[2]
WARNINGS = "-Wall -Wextra -Wconversion -Werror"
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g"]
BOTH = """
#include "one.hpp"
#include "two.hpp"

#include <cstdio>
#include <cstring>
#include <vector>

int main() {
    std::vector<float> x(100, 1.0F), y(100, 2.0F), first(100), second(100);
    two::add(silo::cpu(), x.data(), y.data(), second.data(), 100);
    // Its code is a part of the program, and no object was loaded.
    char line[4096];
    std::FILE *maps = std::fopen("/proc/self/maps", "r");
    while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr)
        if (std::strstr(line, "silo-kernel") != nullptr)
            return 2;
    if (maps != nullptr)
        std::fclose(maps);
    one::add(silo::cpu(), x.data(), y.data(), first.data(), 100);
    try {
        one::add(silo::cpu(), x.data(), nullptr, first.data(), 100);
        return 3;
    } catch (const silo::error &error) {
        if (error.code() != SILO_ERROR_NULL || std::strstr(error.what(), "add") == nullptr)
            return 4;
    }
    silo_error error;
    if (one::add(error, silo::cuda(nullptr, 99), x.data(), y.data(), first.data(), 100) == 0)
        return 5;
    std::printf("%g %g\\n", static_cast<double>(first[99]), static_cast<double>(second[0]));
    two::close();
    one::close();
    one::warmup::add(silo::cpu(), x.data(), y.data(), first.data(), 100);
    return first == second ? 0 : 1;
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(both LANGUAGES C CXX)
enable_testing()
add_subdirectory(one)
add_subdirectory(two)
add_executable(both both.cpp)
target_link_libraries(both one two)
add_executable(selftest one/tests/selftest.cpp)
target_link_libraries(selftest one)
"""


def built(folder, file, *words):
    """A bundle of a file's kernels, by the command."""
    words = ["build", str(ROOT / file), "-o", "k.silo", "--tune", "off", "--quiet", "--target", "cpu", *words]
    environment = {**os.environ, "SILO_HOME": str(folder / "store")}
    warm_python.run([sys.executable, "-m", "silo", *words], cwd=folder, env=environment, check=True)
    return folder / "k.silo"


def passed(program):
    """How many cases pass, of a program that runs where no Python is found."""
    libraries = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    assert "python" not in libraries
    done = subprocess.run([str(program), "cpu"], env={"PATH": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(re.search(r"(\d+) passed, 0 failed, 0 skipped", done.stdout)[1])


@pytest.mark.slow
@pytest.mark.parametrize("compilers", ["gcc g++", pytest.param("clang clang++", marks=pytest.mark.all)])
def test_two_exports_link_into_one_program(tmp_path, compilers):
    if shutil.which("cmake") is None:
        pytest.skip("no CMake on this machine")
    c, cxx = map(compiler, compilers.split())
    bundle = built(tmp_path, "examples/kernels.py", "-k", "add", "-k", "softmax", "--target", "cuda:sm_80")
    one = export_cpp(bundle, tmp_path / "one", ExportOptions(namespace="one"), trust=True)
    export_cpp(
        bundle,
        tmp_path / "two",
        ExportOptions(namespace="two", kernels=("add",), cpu_source=True, tests=False),
        trust=True,
    )
    (tmp_path / "both.cpp").write_text(BOTH)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    flags = [f"-DCMAKE_C_COMPILER={c}", f"-DCMAKE_CXX_COMPILER={cxx}"]
    flags += [f"-DCMAKE_C_FLAGS={WARNINGS}", f"-DCMAKE_CXX_FLAGS={WARNINGS}", "-DCMAKE_BUILD_TYPE=Release"]
    build = tmp_path / "build"
    subprocess.run(["cmake", "-S", ".", "-B", str(build), *flags], cwd=tmp_path, check=True, capture_output=True)
    made = subprocess.run(
        ["cmake", "--build", str(build), "--parallel", "2", "--target", "both", "selftest"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert passed(build / "selftest") == 5
    done = subprocess.run([str(build / "both")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["3", "3"]), done
    assert one.files == len([path for path in (tmp_path / "one").rglob("*") if path.is_file()]) - 1


@pytest.mark.all
@pytest.mark.slow
def test_code_that_is_compiled_in_is_clean(tmp_path):
    """Every kind of case, by the commands of the folder's page, with sanitizers that see into the kernels.

    The bundle is embedded as text, for compilers without an assembler that takes files.
    """
    folder = tmp_path / "out"
    bundle = built(tmp_path, "tests/samples/export_kernels.py")
    export_cpp(bundle, folder, ExportOptions(namespace="ops", cpu_source=True), trust=True)
    page = (folder / "README.md").read_text()
    commands = re.findall(r"^cc .*-c .*$", page, flags=re.MULTILINE)
    assert len(commands) == 3
    cc, cxx = compiler("gcc"), compiler("g++")
    subprocess.run(
        f"{cc} silo/embed/embed.c -o embed && ./embed ops.silo > ops_bundle.inc", shell=True, cwd=folder, check=True
    )
    sanitized = " ".join([*SANITIZED, "-O1", "-DSILO_NO_INCBIN"])
    running = [
        subprocess.Popen(f"{cc} {command.removeprefix('cc ').replace(' -O2', '')} {sanitized}", shell=True, cwd=folder)
        for command in commands
    ]
    tested = [cxx, "-std=c++17", *SANITIZED, *WARNINGS.split(), "-I.", "-c", "tests/selftest.cpp"]
    subprocess.run(tested, cwd=folder, check=True)
    assert [one.wait() for one in running] == [0, 0, 0]
    objects = sorted(path.name for path in folder.glob("*.o"))
    subprocess.run([cxx, *SANITIZED, *objects, "-o", "selftest", "-ldl", "-lm", "-pthread"], cwd=folder, check=True)
    assert passed(folder / "selftest") == 8
