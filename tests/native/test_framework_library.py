"""Exported libraries called as frameworks do: functions of TVM-FFI from Python, operators of torch.

Two exports are built as one project with CMake: ``affine`` with operators of torch where torch is here, and the
kernels of ``made_bundles`` without.
"""

import ctypes
import gc
import importlib
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from framework_bundle import write_affine
from made_bundles import write_made
from silo.commands.export_bundle import ExportOptions, export_cpp

HAS_TORCH = importlib.util.find_spec("torch") is not None
KERNELS = ("add", "bare", "fails", "kinds", "shaped")
PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(both LANGUAGES C CXX)
add_subdirectory(affine)
add_subdirectory(made)
add_subdirectory(affine/frameworks)
add_subdirectory(made/frameworks)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the build."""
    cmake = shutil.which("cmake") or pytest.skip("needs CMake")
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    root = tmp_path_factory.mktemp("frameworks")
    export_cpp(write_affine(root / "affine.silo"), root / "affine", ExportOptions(torch=HAS_TORCH), trust=True)
    export_cpp(
        write_made(root / "made.silo"), root / "made", ExportOptions(kernels=KERNELS, targets=("cpu",)), trust=True
    )
    (root / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
    configure = [cmake, "-S", str(root), "-B", str(root / "build"), "-DCMAKE_BUILD_TYPE=Release"]
    if HAS_TORCH:
        configure.append(f"-DTORCH_FOLDER={Path(importlib.import_module('torch').__file__ or '').parent}")
    targets = ["affine_shared", "made_shared", *(["affine_torch"] if HAS_TORCH else [])]
    for command in (configure, [cmake, "--build", str(root / "build"), "-j", "2", "--target", *targets]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning" not in done.stderr.lower(), done.stderr
    return root / "build"


def test_the_library_needs_libc_alone_and_shows_only_what_is_called(built):
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=just-symbols", str(built / "made/frameworks/libmade.so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {f"__tvm_ffi_{name}" for name in KERNELS} <= set(shown)
    assert [name for name in shown if not name.startswith(("__tvm_ffi_", "made_"))] == []
    from silo.export.wheel import needs_of

    needs = needs_of(built / "made/frameworks/libmade.so").libraries
    assert [name for name in needs if not name.startswith(("libc.", "libm.", "libdl.", "libpthread.", "ld-"))] == []


def test_symbols_are_called_without_tvm_ffi(built):
    """A C program may call them; nobody is there to whom an error could be told."""
    library = ctypes.CDLL(str(built / "made/frameworks/libmade.so"))
    assert library["__tvm_ffi_add"](None, None, 0, None) == -1


# -- TVM-FFI -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tvm_ffi():
    return pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed")


@pytest.fixture
def affine(tvm_ffi, built):
    return tvm_ffi.load_module(str(built / "affine/frameworks/libaffine.so"))["affine"]


@pytest.fixture
def made(tvm_ffi, built):
    return tvm_ffi.load_module(str(built / "made/frameworks/libmade.so"))


def arrays(count=100):
    return np.linspace(-1, 1, count, dtype="float32"), np.full(count, np.nan, "float32")


def test_numpy_arrays(affine):
    x, out = arrays()
    affine(x, out, x.size)
    assert np.array_equal(out, x)


def test_none_numbers_and_strings(affine):
    x, out = arrays()
    affine(x, out, x.size, None, 2.0, "relu")
    assert np.array_equal(out, np.maximum(x * 2, 0))
    affine(x, out, x.size, x, 2)  # an integer where there is code for floats alone
    assert np.array_equal(out, x * 2 + x)
    affine(x, out, np.int64(x.size), x, np.float32(0.5), "")
    assert np.array_equal(out, x * np.float32(0.5) + x)


def test_tensors_of_torch_and_their_views(affine):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, out = torch.linspace(-1, 1, 100), torch.zeros(200)
    affine(x[10:], out[100:], 90)
    assert torch.equal(out[100:190], x[10:])
    assert not out[:100].any()
    assert not out[190:].any()


def test_a_grid_in_place_of_the_declared_one(affine, made):
    x, out = arrays(200)
    affine(x, out, x.size, (1,))
    assert np.array_equal(out[:64], x[:64])
    assert np.isnan(out[64:]).all()
    affine(x, out, x.size, None, 2.0, "", (0, 1))  # launches nothing, and succeeds
    assert np.isnan(out[64:]).all()
    rows = np.zeros(3, "int32")
    made["bare"](rows, 1, (3,))
    assert rows.tolist() == [3000, 3001, 3002]


def test_shapes_reach_the_grid(made):
    rows = np.zeros(4, "int32")
    made["shaped"](rows, 2)
    assert rows.tolist() == [4000, 4001, 4002, 4003]


def test_every_kind_of_number(made, tvm_ffi):
    out = np.zeros(128, "uint8")
    numbers = [True, -8, -16, -32, -(2**63), 200, 60000, 2**32 - 1, 2**63 - 1, 1.5, 2.5, 3.5, 4.5]
    for mode in ("relu", 3, 2.5, True, None, np.dtype("float16")):
        out[:] = 0
        made["kinds"](out, *numbers, mode)
        formats = ["?", "b", "h", "i", "q", "B", "H", "I", "Q", "e", "2s", "f", "d"]
        found = [struct.unpack_from(f"<{one}", out, 8 * at)[0] for at, one in enumerate(formats, 1)]
        assert found == [*numbers[:10], b"\x20\x40", *numbers[11:]]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"x": "f8"}, TypeError, "affine: argument 'x' is an array of float64, and it takes float32"),
        ({"out": "f2"}, TypeError, "affine: argument 'out' is an array of float16, and it takes float32"),
        ({"n": 1.5}, TypeError, "affine: argument 'n' is a float"),
        ({"x": None}, ValueError, "is None, and it was compiled for a value"),
        ({"x": 3}, TypeError, "affine: argument 'x' is an integer, and it takes an array"),
        ({"bias": 2}, TypeError, "affine: argument 'bias'"),
        ({"activation": "gelu"}, RuntimeError, "affine"),
        ({"activation": 2**80}, TypeError, "affine: argument 'ACTIVATION' is an integer of more than 64 bits"),
    ],
)
def test_what_does_not_fit_is_an_error(affine, change, error, text):
    x, out = arrays()
    given = {"x": x, "out": out, "n": x.size, "bias": None, "factor": 1.0, "activation": ""}
    changed = {
        name: given[name].astype(value) if isinstance(value, str) and name in ("x", "out") else value
        for name, value in change.items()
    }
    with pytest.raises(error) as caught:
        affine(*{**given, **changed}.values())
    assert text in str(caught.value)
    assert np.isnan(out).all()
    affine(*given.values())  # the program goes on
    assert np.array_equal(out, x)


@pytest.mark.parametrize("name", ["x", "out"])
def test_memory_that_is_not_aligned_to_its_elements_is_an_error(affine, name):
    """On the CPU too: reading or writing it is undefined in C, whatever this machine makes of it."""
    x, out = arrays()
    given = {"x": x, "out": out}
    given[name] = np.frombuffer(bytearray(4 * x.size + 1), "f4", offset=1)
    before = given[name].copy()
    with pytest.raises(ValueError, match=f"affine: argument '{name}' begins at an address that is not a multiple of 4"):
        affine(given["x"], given["out"], x.size)
    assert np.array_equal(given[name], before)
    affine(x, np.frombuffer(bytearray(4 * x.size + 4), "f4", offset=4), x.size)


def test_calls_that_are_no_calls(affine, made):
    x, out = arrays()
    with pytest.raises(TypeError, match="affine is called without n"):
        affine(x, out)
    with pytest.raises(
        TypeError, match=r"affine takes 6 arguments, and a tuple of one to three integers as its grid; 8"
    ):
        affine(x, out, 1, None, 1.0, "", 1, 2)
    with pytest.raises(ValueError, match="grid dimension x is -1"):
        affine(x, out, x.size, (-1,))
    with pytest.raises(ValueError, match=r"bare.*grid"):
        made["bare"](np.zeros(3, "int32"), 1)


def test_a_kernel_that_fails_says_so(made):
    with pytest.raises(RuntimeError, match="assertion failed: n < 3"):
        made["fails"](np.zeros(3, "int32"), 3)


def test_calls_from_threads(affine):
    failed = []

    def work(seed):
        x, out = arrays(1000 + seed)
        for _ in range(200):
            out[:] = np.nan
            affine(x, out, x.size, None, float(seed))
            if not np.array_equal(out, x * np.float32(seed)):
                failed.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


# -- Operators of torch ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def operator(built):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.ops.load_library(built / "affine/frameworks/libaffine_torch.so")
    return torch.ops.affine.affine.default


def test_operators_use_nothing_newer_than_torch_2_10(built):
    if not HAS_TORCH:
        pytest.skip("torch is not installed")
    words = [
        "nm",
        "-D",
        "--undefined-only",
        "--format=just-symbols",
        str(built / "affine/frameworks/libaffine_torch.so"),
    ]
    used = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    used = {name for name in used if name.startswith(("torch_", "aoti_torch_"))}
    folder = Path(importlib.util.find_spec("torch").origin).parent / "include/torch/csrc"
    stable = (folder / "stable/c/shim.h").read_text(encoding="utf-8")
    known, newer = stable.split("TORCH_VERSION_2_11_0", 1)
    known += (folder / "inductor/aoti_torch/c/shim.h").read_text(encoding="utf-8")
    assert len(used) > 20
    assert [name for name in sorted(used) if not re.search(rf"\b{name}\(", known)] == []
    assert [name for name in sorted(used) if re.search(rf"\b{name}\(", newer)] == []


def test_the_schema_says_what_is_written(operator):
    assert str(operator._schema) == (
        "affine::affine(Tensor x, Tensor(a!) out, SymInt n, Tensor? bias=None, float factor=1., "
        'str ACTIVATION="", *, SymInt[]? grid=None) -> ()'
    )


def test_operators_launch(operator):
    torch = pytest.importorskip("torch")
    x, out = torch.linspace(-1, 1, 100), torch.zeros(100)
    operator(x, out, 100)
    assert torch.equal(out, x)
    operator(x, out, 100, x, 2, "relu")
    assert torch.equal(out, torch.relu(x * 2 + x))
    out.zero_()
    operator(x, out, 100, factor=3.0, grid=[1])
    assert torch.equal(out[:64], x[:64] * 3)
    assert not out[64:].any()


@pytest.mark.parametrize(
    ("x", "more", "text"),
    [
        ("double", {}, "affine: argument 'x' is an array of float64, and it takes float32"),
        ("cfloat", {}, "affine: argument 'x' has a dtype that no kernel takes"),
        ("float", {"bias": "half"}, "affine: argument 'bias' is an array of float16"),
        ("float", {"ACTIVATION": "gelu"}, "affine"),
        ("float", {"grid": [1, 2, 3, 4]}, "affine: a grid is one to three integers"),
        ("float", {"grid": [-1]}, "affine: grid dimension x is -1"),
    ],
)
def test_an_operator_refuses_what_does_not_fit(operator, x, more, text):
    torch = pytest.importorskip("torch")
    given = {name: torch.ones(100, dtype=torch.half) if value == "half" else value for name, value in more.items()}
    out = torch.zeros(100)
    with pytest.raises(RuntimeError) as caught:
        operator(torch.ones(100, dtype=getattr(torch, x)), out, 100, **given)
    assert text in str(caught.value)
    assert not out.any()


def test_an_operator_keeps_nothing_of_its_arguments(operator):
    torch = pytest.importorskip("torch")
    memory = [np.ones(100, "float32") for _ in range(3)]  # which lives as long as a tensor over it
    x, bias, out = map(torch.from_numpy, memory)
    for _ in range(3):
        operator(x, out, 100, bias, 2.0, "relu")
        with pytest.raises(RuntimeError):
            operator(x, out, 100, bias, 2.0, "gelu")
        with pytest.raises(RuntimeError):
            operator(x, out, 100, bias, grid=[])
    watched = list(map(weakref.ref, memory))
    del x, bias, out, memory
    gc.collect()
    assert [one() for one in watched] == [None] * 3


def test_what_is_written_counts_as_modified(operator):
    torch = pytest.importorskip("torch")
    x, out = torch.ones(8), torch.zeros(8)
    weight = torch.ones(8, requires_grad=True)
    kept = (weight * out).sum()  # needs `out` as it is now
    operator(x, out, 8)
    assert out._version == 1
    assert x._version == 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.backward()
    for wrong in (weight, weight * 2):
        with pytest.raises(RuntimeError, match="argument 'out' is written, and torch does not allow that"):
            operator(x, wrong, 8)
    assert torch.equal(weight, torch.ones(8))
    with torch.no_grad():
        operator(x * 3, weight, 8)
    with torch.inference_mode():
        made = torch.zeros(8)
        operator(x, made, 8)
    assert torch.equal(weight, x * 3)
    assert torch.equal(made, x)
    view, scalar = torch.zeros(4, 8)[1].detach(), torch.zeros(())
    operator(x, view, 8)
    operator(x, scalar, 1)
    assert (view.tolist(), scalar.item()) == ([1.0] * 8, 1.0)


def test_operators_compile_for_shapes_that_change(operator):
    torch = pytest.importorskip("torch")
    torch.library.register_fake("affine::affine", lambda *_arguments, **_options: None)
    torch.library.opcheck(operator, (torch.ones(8), torch.empty(8), 8))
    compiled = []

    def backend(module, _examples):
        compiled.append(module)
        return module

    @torch.compile(fullgraph=True, dynamic=True, backend=backend)
    def doubled(x):
        out = torch.empty_like(x)
        operator(x, out, x.numel(), None, 2.0)
        return out

    for count in (7, 100, 33):
        x = torch.linspace(0, 1, count)
        assert torch.equal(doubled(x), x * 2)
    assert len(compiled) == 1


def test_torch_is_asked_for_where_it_is_missing(built, tmp_path):
    if not HAS_TORCH:
        pytest.skip("torch is not installed")
    words = [shutil.which("cmake"), "-S", str(built.parent), "-B", str(tmp_path), "-DTORCH_FOLDER=/nowhere"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode != 0
    assert "no torch with a stable ABI in '/nowhere'" in done.stderr
    assert not list(Path(tmp_path).glob("**/*.so"))
