"""What an export has for frameworks compiles whatever kernels and arguments are called; what the command refuses."""

import importlib.util
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from core_native import compiler
from export_samples import Maker, add_kernel, add_parameters, parameter
from silo.commands import export_bundle as exporting
from silo.commands.export_bundle import ExportOptions, check_export
from silo.core.specialization import Specialization
from silo.errors import BundleError, CompileError, CompilerMissingError

# The code of these bundles is made up, so nobody vouched for it.
export_cpp = partial(exporting.export_cpp, trust=True)
export_wheel = partial(exporting.export_wheel, trust=True)
NAME = 'x */ int y; /* ??/ "\\'
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]


def strange(maker):
    """Names of no language, a descriptor whose block a caller gives, text constants, a name twice."""
    described = [
        maker.variant("described", (parameter("x", "d bfloat16"), *add_parameters()[1:]), facts)
        for facts in (Specialization(constants=(("x", (16, side)),)) for side in (16, 32))
    ]
    named = [
        maker.variant(
            NAME,
            (*add_parameters(), parameter("lambda", "c"), parameter(NAME, "f"), parameter("x_block", "b")),
            Specialization(constants=(("lambda", value),)),
        )
        for value in ("relu", f"{NAME}\n", "")
    ]
    return [
        add_kernel(maker, elements=("float32", "bfloat16", "bool")),
        add_kernel(maker, "a.b"),
        add_kernel(maker, "a_b"),
        maker.kernel("described", described),
        maker.kernel(NAME, named, defaults={"lambda": f"{NAME}\n"}),
    ]


@pytest.fixture
def folder(tmp_path):
    maker = Maker()
    path = maker.write(tmp_path / "k.silo", strange(maker))
    export_cpp(path, tmp_path / "out", ExportOptions(torch=True))
    assert check_export(path, tmp_path / "out").lines == ()
    return tmp_path / "out"


def compiled(folder, source, *words):
    command = [*words, *WARNINGS, f"-I{folder / 'silo'}", "-fvisibility=hidden", str(folder / source)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_functions_of_tvm_ffi_compile_without_a_warning(folder):
    text = compiled(folder, "frameworks/k_frameworks.c", compiler("gcc"), "-std=c11", "-D_GNU_SOURCE", "-S", "-o", "-")
    functions = {line.split()[1] for line in text.splitlines() if line.strip().startswith(".globl")}
    functions = {name for name in functions if name.startswith("__tvm_ffi_")}
    assert len(functions) == 5
    assert {"__tvm_ffi_add", "__tvm_ffi_a_b", "__tvm_ffi_a_b_2", "__tvm_ffi_described"} <= functions


def test_operators_of_torch_compile_without_a_warning(folder):
    found = importlib.util.find_spec("torch")
    if found is None:
        pytest.skip("torch is not installed")
    include = Path(found.origin).parent / "include"
    compiled(folder, "frameworks/k_torch.cpp", compiler("g++"), "-std=c++17", "-fsyntax-only", "-isystem", str(include))


def test_a_folder_without_operators_has_no_source_of_them(folder):
    path = folder.parent / "k.silo"
    export_cpp(path, folder)
    assert not (folder / "frameworks" / "k_torch.cpp").exists()
    assert "torch" not in (folder / "frameworks" / "CMakeLists.txt").read_text()


def test_a_wheel_needs_cmake(tmp_path, monkeypatch):
    maker = Maker()
    path = maker.write(tmp_path / "k.silo", [add_kernel(maker)])
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with pytest.raises(CompilerMissingError, match="building a wheel needs CMake: install it"):
        export_wheel(path, "demo", tmp_path)


def test_a_build_that_fails_shows_its_end(tmp_path):
    compiler("cmake")
    maker = Maker()
    path = maker.write(tmp_path / "k.silo", [add_kernel(maker)])
    export_cpp(path, tmp_path / "out", ExportOptions(namespace="demo"))
    (tmp_path / "out" / "CMakeLists.txt").write_text('message(FATAL_ERROR "no luck today")')
    from silo.export.wheel import built_libraries

    with pytest.raises(CompileError, match=r"(?s)does not build: .*no luck today"):
        built_libraries(tmp_path / "out", "demo", tmp_path / "build", torch=False)


def test_names_that_no_wheel_or_namespace_may_have(tmp_path):
    maker = Maker()
    path = maker.write(tmp_path / "k.silo", [add_kernel(maker)])
    with pytest.raises(BundleError, match="cannot name a wheel"):
        export_wheel(path, "My Kernels", tmp_path)
    with pytest.raises(BundleError, match="not a namespace"):
        export_wheel(path, "silo-kernels", tmp_path)
    assert not list(tmp_path.glob("*.whl"))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--check", "out", "--wheel", "demo"), 2),
        (("--check", "out", "--torch"), 2),
        (("--wheel", "My Kernels"), 3),
    ],
)
def test_what_the_command_refuses(tmp_path, words, code):
    maker = Maker()
    maker.write(tmp_path / "k.silo", [add_kernel(maker)])
    command = [sys.executable, "-m", "silo", "export", "k.silo", "--trust", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
