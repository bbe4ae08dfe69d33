"""Wheels of exports: names, tags that are true, records, equal bytes, and the module inside."""

import base64
import csv
import hashlib
import importlib
import io
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest

import silo
from silo.core.values import dtype
from silo.errors import BundleError
from silo.export.operations import ExportedOperation, GivenArgument, OperationArgument
from silo.export.wheel import needs_of, package_files, package_of, write_wheel

FLOAT = (dtype("float32"),)
SCALE = ExportedOperation(
    "scale",
    "scale",
    0,
    (
        GivenArgument("x", "x", 0, OperationArgument.TENSOR, dtypes=FLOAT),
        GivenArgument("out", "out", 1, OperationArgument.TENSOR, dtypes=FLOAT, writes=True),
        GivenArgument("factor", "factor", 3, OperationArgument.REAL, default=2.0),
    ),
    has_grid=True,
)
COPY = ExportedOperation(
    "copy", "copy", 1, (GivenArgument("x", "x", 0, OperationArgument.DESCRIPTOR, block="x_block"),), has_grid=False
)


def native():
    return Path(silo.__file__).parent / "_native.abi3.so"


@pytest.mark.parametrize("name", ["", "1a", "-a", "a b", "Kernels", "a/b", "a==", "a==x", "a==1.0 ", "größe"])
def test_names_that_no_wheel_may_have(name):
    if name == "a==":
        assert package_of(name).version == "0.1.0"
        return
    with pytest.raises(BundleError, match=r"cannot name a wheel|not a version of a wheel"):
        package_of(name)


def test_a_wheel_has_a_record_of_all_in_it(tmp_path):
    package = package_of("demo-kernels==1.2")
    files = package_files(package.module, package.version, "demo", [SCALE], torch=False)
    path = write_wheel(tmp_path, package, files, [native()], texts={"LICENSE": b"text"})
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    info = "demo_kernels-1.2.dist-info"
    rows = list(csv.reader(io.StringIO(held[f"{info}/RECORD"].decode())))
    assert [row[0] for row in rows] == list(held)
    for name, digest, size in rows[:-1]:
        made = base64.urlsafe_b64encode(hashlib.sha256(held[name]).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={made}", str(len(held[name])))
    assert rows[-1] == [f"{info}/RECORD", "", ""]
    assert "demo_kernels/_native.abi3.so" in held
    assert held[f"{info}/licenses/LICENSE"] == b"text"
    tag = path.name.removeprefix("demo_kernels-1.2-").removesuffix(".whl")
    assert f"\nTag: {tag}\n" in held[f"{info}/WHEEL"].decode()
    assert "\nRoot-Is-Purelib: false\n" in held[f"{info}/WHEEL"].decode()
    assert held[f"{info}/METADATA"].decode().startswith("Metadata-Version: 2.1\nName: demo-kernels\nVersion: 1.2\n")


def test_equal_contents_give_equal_bytes(tmp_path):
    package = package_of("demo")
    one, two = (
        write_wheel(tmp_path / folder, package, {"demo/__init__.py": b""}, [native()]).read_bytes() for folder in "ab"
    )
    assert one == two


def test_what_a_library_needs_is_read_from_it():
    needs = needs_of(native())
    assert "libc.so.6" in needs.libraries
    assert any(version.startswith("GLIBC_2.") for version in needs.versions)


@pytest.mark.parametrize("cut", [0, 4, 40, 64, 300, 1000])
def test_a_damaged_library_is_an_error(tmp_path, cut):
    path = tmp_path / "cut.so"
    path.write_bytes(native().read_bytes()[:cut])
    with pytest.raises(BundleError, match="is no shared library"):
        needs_of(path)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes the module of a wheel importable."""

    def make(operations, *, torch=False):
        for path, data in package_files("made_kernels", "1.0", "demo", operations, torch=torch).items():
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_bytes(data)
        monkeypatch.syspath_prepend(tmp_path)
        return importlib.import_module("made_kernels")

    yield make
    for name in [name for name in sys.modules if name.split(".")[0] == "made_kernels"]:
        del sys.modules[name]


@pytest.fixture
def calls(monkeypatch):
    """Stands for tvm-ffi: the calls that functions of a library get."""
    found = []
    functions = {name: (lambda *given, name=name: found.append((name, given))) for name in ("scale", "copy")}
    module = types.SimpleNamespace(load_module=lambda path: functions if path.endswith("/libdemo.so") else None)
    monkeypatch.setitem(sys.modules, "tvm_ffi", module)
    return found


def test_functions_of_the_package_are_those_of_the_library(package, calls):
    x, out = np.ones(3, "float32"), np.zeros(3, "float32")
    made = package([SCALE, COPY])
    made.scale(x, out)
    made.scale(x, out=out, factor=3.0, grid=4)
    made.copy(x, x_block=[16], grid=[1, 2])
    assert [name for name, _ in calls] == ["scale", "scale", "copy"]
    (first, second, third) = (given for _, given in calls)
    assert first[0] is x
    assert first[1] is out
    assert first[2:] == (2.0,)
    assert second[2:] == (3.0, (4,))
    assert third == ((x, (16,)), (1, 2))
    assert "out: float32 tensor, written" in made.scale.__doc__


def test_a_read_only_array_is_not_written(package, calls):
    x = np.ones(3, "float32")
    x.flags.writeable = False
    made = package([SCALE])
    made.scale(x, np.zeros(3, "float32"))
    with pytest.raises(ValueError, match="scale: argument 1 is written, and the array is read-only"):
        made.scale(x, x)
    assert len(calls) == 1


def test_without_tvm_ffi_a_call_says_what_to_install(package, monkeypatch):
    monkeypatch.setitem(sys.modules, "tvm_ffi", None)
    made = package([SCALE])
    with pytest.raises(ImportError, match="demo: a call with these arguments goes through tvm-ffi: install apache-tvm"):
        made.scale(np.ones(3), np.ones(3))
    with pytest.raises(ImportError, match="demo has no operators of torch: silo export --torch makes them"):
        made.operators()
