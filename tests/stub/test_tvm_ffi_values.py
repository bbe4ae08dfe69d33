"""native/frameworks/tvm_ffi.c: values of TVM-FFI become arguments of a launch; the device, the stream, what is raised.

libsilo and tvm-ffi are stood for by framework_recorder.c, whose names all libraries of the process find: a process
with the real tvm-ffi would mix the two. Values are laid out here as tvm/ffi/c_api.h has them.
"""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from dlpack_structs import DLTensor

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native"
CPU, CUDA, PINNED, METAL, ROCM = 1, 2, 3, 8, 10
FLOAT32, FLOAT16 = (2, 32, 1), (2, 16, 1)


class Any(ctypes.Structure):  # TVMFFIAny
    _fields_ = [("type", ctypes.c_int32), ("length", ctypes.c_uint32), ("value", ctypes.c_uint64)]


class TensorObject(ctypes.Structure):
    _fields_ = [("header", ctypes.c_uint8 * 24), ("tensor", DLTensor)]


class Sequence(ctypes.Structure):  # an object with TVMFFIByteArray, TVMFFIShapeCell, or the beginning of TVMFFISeqCell
    _fields_ = [("header", ctypes.c_uint8 * 24), ("data", ctypes.c_void_p), ("count", ctypes.c_int64)]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    output = tmp_path_factory.mktemp("recorder") / "recorder.so"
    sources = [ROOT / "tests/native/framework_recorder.c", NATIVE / "frameworks/tvm_ffi.c", NATIVE / "core/error.c"]
    flags = ["-std=c11", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC", "-fvisibility=hidden"]
    flags += ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    flags += ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    flags += [f"-I{NATIVE / 'core'}", f"-I{NATIVE / 'frameworks'}"]
    subprocess.run([compiler, *flags, *map(str, sources), "-o", str(output), "-ldl"], check=True)
    # As Python loads tvm-ffi: what it offers is found by name.
    return ctypes.CDLL(str(output), mode=ctypes.RTLD_GLOBAL)


class Caller:
    """Calls one symbol; keeps what its arguments point at."""

    def __init__(self, library, name="mix"):
        self.library = library
        self.symbol = library[f"__tvm_ffi_{name}"]
        self.kept = []

    def keep(self, value):
        self.kept.append(value)
        return ctypes.addressof(value)

    def tensor(self, device=(CPU, 0), dtype=FLOAT32, shape=(4,), strides=None, *, data=0x1000, offset=0, kind=70):
        extents = [None if one is None else self.keep((ctypes.c_int64 * len(one))(*one)) for one in (shape, strides)]
        tensor = DLTensor(data, *device, len(shape), *dtype, *extents, offset)
        if kind == 7:
            return Any(7, 0, self.keep(tensor))
        return Any(70, 0, self.keep(TensorObject((ctypes.c_uint8 * 24)(), tensor)))

    def sequence(self, *items, kind=71):
        made = (Any * len(items))(*map(self.value, items))
        return Any(kind, 0, self.keep(Sequence((ctypes.c_uint8 * 24)(), self.keep(made), len(items))))

    def shape(self, *extents):
        made = (ctypes.c_int64 * len(extents))(*extents)
        return Any(69, 0, self.keep(Sequence((ctypes.c_uint8 * 24)(), self.keep(made), len(extents))))

    def text(self, text, kind=65):
        data = text.encode()
        if kind == 11:
            return Any(11, len(data), int.from_bytes(data.ljust(8, b"\0"), "little"))
        address = self.keep(ctypes.create_string_buffer(data))
        if kind == 8:
            return Any(8, 0, address)
        return Any(65, 0, self.keep(Sequence((ctypes.c_uint8 * 24)(), address, len(data))))

    def value(self, given):
        match given:
            case Any():
                return given
            case None:
                return Any(0, 0, 0)
            case bool():
                return Any(2, 0, int(given))
            case int():
                return Any(1, 0, given & (2**64 - 1))
            case float():
                return Any(3, 0, ctypes.c_uint64.from_buffer(ctypes.c_double(given)).value)
            case _:
                raise TypeError(given)

    def read(self, name):
        return (ctypes.c_char * 4096).in_dll(self.library, name).value.decode()

    def __call__(self, *given, code=0):
        ctypes.c_int.in_dll(self.library, "next_code").value = code
        for name in ("recorded", "raised"):
            (ctypes.c_char * 4096).in_dll(self.library, name).value = b""
        arguments = (Any * max(1, len(given)))(*map(self.value, given))
        result = Any(0, 0, 0)
        returned = self.symbol(None, arguments, len(given), ctypes.byref(result))
        assert (result.type, result.length, result.value) == (0, 0, 0)
        assert (returned, returned != 0) in ((0, bool(self.read("raised"))), (-1, bool(self.read("raised"))))
        return self.read("raised") if returned else self.read("recorded")


@pytest.fixture
def mix(library):
    return Caller(library)


X = "array 0x220 at 0x1000 shape 4"


def test_a_tensor_comes_with_its_shape(mix):
    plain = mix(mix.tensor(shape=(3, 4)))
    assert plain == "mix on 1:0 stream (nil); array 0x220 at 0x1000 shape 3x4"
    view = mix(mix.tensor(shape=(3, 4), strides=(8, 2), offset=64, dtype=FLOAT16, kind=7))
    assert view == "mix on 1:0 stream (nil); array 0x210 at 0x1040 shape 3x4 strides 8x2"


def test_an_empty_tensor_has_no_memory(mix):
    assert mix(mix.tensor(shape=(0,), data=0, offset=64)) == "mix on 1:0 stream (nil); array 0x220 at (nil) shape 0"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "none"),
        (True, "bool 1"),
        (-(2**63), f"int {-(2**63)}"),
        (2**63 - 1, f"int {2**63 - 1}"),
        (0.1, "float 0.10000000000000001"),
        (Any(5, 0, 2 | 16 << 8 | 1 << 16), "type 0x210"),
    ],
)
def test_values_that_are_no_arrays(mix, given, expected):
    assert mix(mix.tensor(), given) == f"mix on 1:0 stream (nil); {X}; {expected}"


@pytest.mark.parametrize(("kind", "text"), [(11, ""), (11, "gelu"), (11, "1234567"), (65, "leaky_relu"), (8, "relu")])
def test_strings_of_all_three_forms(mix, kind, text):
    assert mix(mix.tensor(), mix.text(text, kind)) == f"mix on 1:0 stream (nil); {X}; text {text}"


def test_what_the_config_sets_is_left_to_it(mix):
    assert mix(mix.tensor(), 1, 2.5) == f"mix on 1:0 stream (nil); {X}; int 1; absent; float 2.5"


def test_an_integer_for_a_float_is_one(mix):
    assert mix(mix.tensor(), 1, 2).endswith("; int 1; absent; float 2")


@pytest.mark.parametrize("grid", [(5,), (5, 6), (5, 6, 7)])
@pytest.mark.parametrize("kind", [69, 71, 75])
def test_a_tuple_of_integers_behind_the_arguments_is_the_grid(mix, grid, kind):
    given = mix.shape(*grid) if kind == 69 else mix.sequence(*grid, kind=kind)
    whole = "x".join(map(str, (*grid, 1, 1)[:3]))
    assert mix(mix.tensor(), given) == f"mix on 1:0 stream (nil); {X}; grid {whole}"


def test_a_descriptor_is_a_tensor_or_a_pair(mix):
    alone = mix(mix.tensor(), 1, 2.0, mix.tensor(shape=(8, 8)))
    assert alone.endswith("; descriptor 0x220 at 0x1000 shape 8x8")
    pair = mix(mix.tensor(), 1, 2.0, mix.sequence(mix.tensor(shape=(8, 8)), mix.shape(4, 2)))
    assert pair.endswith("; descriptor 0x220 at 0x1000 shape 8x8 block 4x2")


@pytest.mark.parametrize(("kind", "device"), [(CUDA, 2), (ROCM, 10)])
def test_a_gpu_is_its_tensors_with_the_current_stream(mix, kind, device):
    assert mix(mix.tensor((kind, 3)), 1).startswith(f"mix on {device}:3 stream {0x1000 * device + 3:#x}; ")


def test_pinned_memory_may_be_beside_a_gpus(mix):
    for order in (((PINNED, 0), (CUDA, 1)), ((CUDA, 1), (PINNED, 0))):
        assert mix(*map(mix.tensor, order)).startswith("mix on 2:1 stream 0x2001; ")
    assert mix(mix.tensor((PINNED, 0))).startswith("mix on 2:0 stream 0x2000; ")


def test_tensors_of_two_devices_are_an_error(mix):
    assert mix(mix.tensor((CUDA, 0)), mix.tensor((CUDA, 1))) == (
        "ValueError: mix: argument 'x' is on cuda:0 and 'y' on cuda:1; all arrays of one call are on one device"
    )
    assert mix(mix.tensor(), mix.tensor((CUDA, 1))).startswith(
        "ValueError: mix: argument 'x' is on cpu:0 and 'y' on cu"
    )


def test_a_device_without_kernels_is_an_error(mix):
    assert mix(mix.tensor((METAL, 0))) == (
        "ValueError: mix: argument 'x' is on an unknown device:0; kernels run on cpu, cuda and rocm"
    )


def test_without_a_tensor_nothing_says_where_to_run(mix):
    expected = "TypeError: mix: no argument is a tensor, so nothing says on which device to run"
    assert mix(1, 2) == expected
    assert mix() == expected


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (Any(4, 0, 16), "an address, which does not say what it points at"),
        (Any(6, 0, 1), "a device"),
        (Any(9, 0, 16), "an object that no kernel takes"),
        (Any(72, 0, 16), "an object that no kernel takes"),
        (Any(78, 0, 16), "an integer of more than 64 bits"),
    ],
)
def test_values_that_no_kernel_takes(mix, given, what):
    assert mix(mix.tensor(), given) == f"TypeError: mix: argument 'y' is {what}"


def test_sequences_in_the_wrong_place(mix):
    tensor, pair = mix.tensor(), mix.sequence(mix.tensor(), mix.shape(2))
    assert mix(tensor, pair, 1) == "TypeError: mix: argument 'y' is a sequence"
    for wrong in (mix.sequence(1, 2, 3, 4), mix.sequence(mix.tensor()), mix.sequence()):
        assert mix(tensor, 1, 2.0, wrong).startswith(
            "TypeError: mix: argument 'd' is a sequence; a descriptor is a ten"
        )
    for block in (mix.shape(2, 2), 3, mix.sequence(1.5), mix.shape()):
        assert mix(tensor, 1, 2.0, mix.sequence(mix.tensor(), block)) == (
            "ValueError: mix: the block of argument 'd' is no sequence of 1 integers, one an axis"
        )


def test_strings_and_elements_that_silo_has_no_form_for(mix):
    long, small = mix.text("ab\0cdefghi"), mix.text("a\0b", 11)
    assert mix(mix.tensor(), long) == "TypeError: mix: argument 'y' is a string with a zero in it"
    assert mix(mix.tensor(), small) == "TypeError: mix: argument 'y' is a string with a zero in it"
    assert mix(mix.tensor(dtype=(2, 32, 4))) == (
        "TypeError: mix: argument 'x' has elements of 4 lanes; kernels take elements of one"
    )
    assert mix(Any(7, 0, 0)) == "ValueError: mix: argument 'x' is a tensor without a value"


def test_too_many_arguments(mix):
    assert mix(mix.tensor(), 1, 2, mix.tensor(), 5, 6) == (
        "TypeError: mix takes 4 arguments, and a tuple of one to three integers as its grid; 6 given"
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, "TypeError") for code in (20, 22, 24, 25)),
        *((code, "ValueError") for code in (23, 26, 27, 28, 29, 42)),
        (60, "MemoryError"),
        *((code, "RuntimeError") for code in (1, 30, 31, 45)),
    ],
)
def test_errors_of_a_launch_are_raised_by_kind(mix, code, kind):
    assert mix(mix.tensor(), code=code).splitlines()[0] == f"{kind}: mix: refused"


def test_every_variants_reason_is_raised(mix):
    assert mix(mix.tensor(), code=30) == "RuntimeError: mix: refused\nthe first one\nthe second"


def test_a_bundle_that_does_not_open_is_raised(library):
    damaged = Caller(library, "damaged")
    assert damaged(damaged.tensor()) == "RuntimeError: mix: the bundle is damaged"
