"""The programs of examples/ in C and Rust, and the program of docs/c-and-cpp.md, on bundles with CPU code."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

import c_programs
import exported
from silo.bundle.reader import open_bundle
from silo.settings import override

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libsilo is built for Linux here")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The examples' ``add``, ``matmul`` and ``softmax`` for this CPU."""
    pytest.importorskip("triton", reason="the examples' kernels are Triton's")
    from silo.commands.build_bundle import build_bundle

    folder = tmp_path_factory.mktemp("bundle")
    path = folder / "kernels.silo"
    with override(home=folder / "store", tune="off"):
        build_bundle([EXAMPLES / "kernels.py"], path, targets=["cpu"], kernels=["add", "matmul", "softmax"], tune="off")
    return path


@pytest.fixture(scope="module")
def identity(bundle):
    with open_bundle(bundle) as opened:
        return opened.identity


@pytest.fixture(scope="module")
def c_program(identity, tmp_path_factory):
    output = tmp_path_factory.mktemp("c") / "open_bundle"
    return c_programs.c_program(output, EXAMPLES / "c" / "open_bundle.c", flags=[f'-DBUNDLE_IDENTITY="{identity}"'])


def test_the_c_program_opens_a_bundle_and_launches(c_program, bundle):
    told = c_programs.run([c_program, bundle]).stdout
    assert "kernel add\nkernel matmul\nkernel softmax\n" in told
    assert "add of 1048593 elements: right" in told
    assert "int32 instead: wrong dtype" in told
    assert "softmax of 300 x 781: right" in told


def test_a_program_that_an_earlier_header_was_compiled_into_runs_with_this_library(identity, bundle, tmp_path):
    earlier = ROOT / "tests" / "data" / "before"
    flags = [f"-I{earlier}", f'-DBUNDLE_IDENTITY="{identity}"']
    listed = c_programs.run(["gcc", *flags, "-E", EXAMPLES / "c" / "open_bundle.c"]).stdout
    assert f'"{earlier}/silo.h"' in listed  # the folder stands first
    program = c_programs.c_program(tmp_path / "earlier", EXAMPLES / "c" / "open_bundle.c", flags=flags)
    told = c_programs.run([program, bundle]).stdout
    assert "add of 1048593 elements: right" in told
    assert "int32 instead: wrong dtype" in told


def test_nothing_of_python_is_in_the_process(c_program, bundle):
    files = c_programs.loaded_files([c_program, bundle])
    assert "libc.so" in files  # the loader spoke
    assert "python" not in files.replace(str(ROOT), "").replace(str(c_program), "").replace(str(bundle), "").lower()
    symbols = c_programs.run(["nm", "-u", c_programs.archive()]).stdout
    assert not re.search(r"\bU _?Py", symbols)


def test_a_program_that_was_built_for_another_bundle_runs_none_of_its_code(bundle, tmp_path):
    other = c_programs.c_program(
        tmp_path / "other", EXAMPLES / "c" / "open_bundle.c", flags=[f'-DBUNDLE_IDENTITY="{"0" * 64}"']
    )
    told = c_programs.run([other, bundle], code=1)
    assert "right" not in told.stdout
    assert "add" in told.stderr
    assert "(untrusted" in told.stderr


def test_files_that_are_no_bundles_are_errors(c_program, bundle, tmp_path):
    data = bundle.read_bytes()
    cases = {
        "absent": (None, "(unreadable file)"),
        "foreign": (b"\x7fELF" + data[4:], "(not a .silo file)"),
        "short": (data[:-1], "(truncated file)"),
        "damaged": (data[:-1] + bytes([data[-1] ^ 1]), "(damaged file)"),
    }
    for name, (content, word) in cases.items():
        path = tmp_path / f"{name}.silo"
        if content is not None:
            path.write_bytes(content)
        told = c_programs.run([c_program, path], code=1).stderr
        assert name in told
        assert word in told, told


def test_the_program_of_the_page_runs(bundle, tmp_path):
    page = (ROOT / "docs" / "c-and-cpp.md").read_text(encoding="utf-8")
    source = tmp_path / "page.c"
    source.write_text(re.findall(r"^```c\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0], encoding="utf-8")
    shutil.copy(bundle, tmp_path / "kernels.silo")
    assert c_programs.run([c_programs.c_program(tmp_path / "page", source)], cwd=tmp_path).stdout == "1000\n"


def cargo_command():
    path = os.pathsep.join([os.environ["PATH"], str(Path.home() / ".cargo" / "bin")])
    cargo = shutil.which("cargo", path=path)
    if cargo is None or shutil.which("rustc", path=path) is None:
        pytest.skip("needs cargo and rustc")
    return cargo, path


def rust_program(folder, **variables):
    cargo, path = cargo_command()
    manifest = EXAMPLES / "rust" / "Cargo.toml"
    command = [cargo, "build", "--quiet", "--offline", "--locked", "--manifest-path", manifest]
    c_programs.run(command, CARGO_TARGET_DIR=str(folder), PATH=path, **variables)
    return folder / "debug" / "silo-kernels"


@pytest.mark.slow
def test_the_rust_program_opens_a_bundle_and_launches(bundle, identity, tmp_path):
    program = rust_program(tmp_path / "target", SILO_LIBRARY_DIR=str(c_programs.archive().parent))
    told = c_programs.run([program, bundle, identity]).stdout
    assert "kernels: add, matmul, softmax" in told
    assert "add from four threads: right" in told
    assert "int8 instead: wrong dtype" in told
    refused = c_programs.run([program, bundle, "0" * 64], code=1)
    assert "(untrusted" in refused.stderr
    missing = c_programs.run([program, tmp_path / "absent.silo", identity], code=1)
    assert "absent.silo" in missing.stderr


def test_the_rust_crate_has_no_dependencies():
    locked = (EXAMPLES / "rust" / "Cargo.lock").read_text(encoding="utf-8")
    assert re.findall(r'^name = "(.*)"', locked, re.MULTILINE) == ["silo-kernels"]


@pytest.mark.all
@pytest.mark.slow
def test_an_installed_library_is_found_by_cmake_and_pkg_config(bundle, identity, tmp_path):
    cmake = c_programs.compiler("cmake")
    prefix = tmp_path / "prefix"
    c_programs.run([cmake, "-S", ROOT / "native", "-B", tmp_path / "library", "-DSILO_STATIC=OFF"])
    c_programs.run([cmake, "--build", tmp_path / "library"])
    c_programs.run([cmake, "--install", tmp_path / "library", "--prefix", prefix])
    c_programs.run(
        [
            cmake,
            "-S",
            EXAMPLES / "c",
            "-B",
            tmp_path / "program",
            f"-DCMAKE_PREFIX_PATH={prefix}",
            f"-DBUNDLE_IDENTITY={identity}",
        ]
    )
    c_programs.run([cmake, "--build", tmp_path / "program"])
    told = c_programs.run([tmp_path / "program" / "open_bundle", bundle]).stdout
    assert "softmax of 300 x 781: right" in told


@pytest.mark.all
@pytest.mark.slow
def test_the_cpp_program_has_its_kernels_inside(bundle, tmp_path):
    cmake = c_programs.compiler("cmake")
    c_programs.compiler("g++", "c++", "clang++")
    made = exported.export(bundle, tmp_path / "kernels", "--kernels", "add", "--kernels", "matmul")
    build = tmp_path / "build"
    c_programs.run([cmake, "-S", EXAMPLES / "cpp", "-B", build, f"-DKERNELS={made}"])
    c_programs.run([cmake, "--build", build])
    program = build / "main"
    told = c_programs.run([program], cwd=tmp_path).stdout
    assert told.startswith("add: right\nmatmul: right\nnull pointer: ")
    assert "out" in told
    assert "python" not in c_programs.loaded_files([program]).replace(str(program), "").lower()


def test_the_pages_cpp_compiles(bundle, tmp_path):
    cxx = c_programs.compiler("g++", "c++", "clang++")
    made = exported.export(bundle, tmp_path / "engine", "--kernels", "add")
    pages = [ROOT / "README.md", ROOT / "docs" / "c-and-cpp.md"]
    blocks = [
        block
        for page in pages
        for block in re.findall(r"^```cpp\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    ]
    assert len(blocks) == 2
    for block in blocks:
        include, _, rest = block.partition("\n")
        assert include == '#include "engine.hpp"'
        if "int main()" not in rest:
            rest = f"int run(float *x, float *y, float *out, long n) {{\n{rest}return 0;\n}}\n"
        source = tmp_path / "block.cpp"
        source.write_text(f"{include}\n{rest}", encoding="utf-8")
        c_programs.run([cxx, *exported.CPP, "-fsyntax-only", f"-I{made}", source])
