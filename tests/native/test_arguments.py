import ctypes
import struct

import numpy as np
import pytest

import launch_kernels as kernels
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.values import DTYPES, dtype
from silo.errors import ArgumentError
from silo.launch import native
from silo.launch.arguments import ValueKind
from silo.launch.buffers import Buffer
from silo.launch.runtime import make_launcher

ml_dtypes = pytest.importorskip("ml_dtypes")

NUMPY_NAMES = [one.name for one in DTYPES]


def numpy_array(name, size=4):
    return np.zeros(size, dtype=getattr(ml_dtypes, name, None) or name)


@pytest.mark.parametrize("one", DTYPES, ids=str)
def test_the_dtype_tables_of_python_and_c_agree(one):
    for name in (one.name, one.short):
        assert native.dtype_named(name)[:3] == (one.code, one.bits, one.name)


def test_an_unknown_dtype_name_is_none():
    assert native.dtype_named("float31") is None


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_numpy_arrays_of_every_dtype(name):
    array = numpy_array(name, 6).reshape(2, 3)[:, ::2]
    address, code, bits, readonly, device, sizes, strides = native.read(array)
    assert (code, bits) == (dtype(name).code, dtype(name).bits)
    assert (address, readonly, device) == (array.ctypes.data, False, (1, 0))
    assert (sizes, strides) == ((2, 2), (3, 2))


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_buffers_of_every_dtype(name):
    buffer = Buffer((2, 3), name)
    assert native.read(buffer)[1:] == (dtype(name).code, dtype(name).bits, False, (1, 0), (2, 3), (3, 1))
    assert native.read(buffer)[0] == buffer.data_ptr()
    assert buffer.data_ptr() % 64 == 0


def test_torch_tensors_by_shim_and_by_dlpack_read_the_same():
    torch = pytest.importorskip("torch")

    names = ["bool", "int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64"]
    names += ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "uint16", "uint32", "uint64"]
    tensors = [torch.zeros(3, 8, dtype=getattr(torch, name))[1:, ::2] for name in names]
    tensors.append(torch.nn.Parameter(torch.zeros(5)))
    try:
        assert native.connect_torch(), "this torch should have the C functions"
        assert native.adapter(torch.Tensor) == native.adapter(torch.nn.Parameter) == "torch"
        by_shim = [native.read(tensor) for tensor in tensors]
        native.disconnect_torch()
        assert native.adapter(torch.Tensor) == "exchange"
        assert [native.read(tensor) for tensor in tensors] == by_shim
        assert [one[0] for one in by_shim] == [tensor.data_ptr() for tensor in tensors]
        assert [(one[1], one[2]) for one in by_shim[: len(names)]] == [(dtype(n).code, dtype(n).bits) for n in names]
    finally:
        native.connect_torch()


def test_the_shim_is_switched_off_by_the_setting():
    pytest.importorskip("torch")
    from silo.settings import override

    with override(torch_shim=False):
        assert not native.connect_torch()


@pytest.mark.parametrize("shim", [True, False])
def test_torch_views_whose_memory_holds_other_values_are_refused(shim):

    torch = pytest.importorskip("torch")

    class Mine(torch.Tensor):
        pass

    real = torch.arange(8.0)
    views = [torch._neg_view(real), torch.complex(real, real).conj().imag, torch._neg_view(real)[2:].as_subclass(Mine)]
    try:
        native.connect_torch() if shim else native.disconnect_torch()
        launch, _ = kernels.nothing("x")
        for view in views:
            assert view.is_neg()
            with pytest.raises(
                ArgumentError, match=r"holds its values with the other sign .*: pass t\.resolve_neg\(\)"
            ):
                launch[1](view)
            launch[1](view.resolve_neg())
        if shim:
            with pytest.raises(ArgumentError, match=r"is a conjugated view, .*: pass t\.resolve_conj\(\)"):
                launch[1](torch.complex(real, real).conj())
    finally:
        native.connect_torch()


def test_a_torch_subclass_is_not_read_by_the_shim():
    torch = pytest.importorskip("torch")

    class Mine(torch.Tensor):
        pass

    assert native.adapter(Mine) == "exchange"
    tensor = torch.zeros(3).as_subclass(Mine)
    assert native.read(tensor)[0] == tensor.data_ptr()


def test_a_tensor_without_memory_is_refused():
    torch = pytest.importorskip("torch")
    launch, _ = kernels.nothing("x")
    with pytest.raises(ArgumentError, match="argument 'x'"):
        launch[1](torch.empty(3, device="meta"))


def test_arrays_without_elements_are_null_pointers():
    assert native.read(np.empty((0, 3), np.float32))[0] == 0
    assert native.read(Buffer((0, 3)))[0] == 0


class OnlyDlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnlyDataPtr:
    dtype = "torch.float16"
    device = "cpu"

    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address


class OnlyCudaDict:
    def __init__(self, typestr="<f4", readonly=False):
        self.__cuda_array_interface__ = {"data": (4096, readonly), "typestr": typestr, "shape": (3,), "version": 3}

    # The protocol is looked up on the type.
    __cuda_array_interface__ = None


def test_duck_types():
    array = np.arange(6, dtype=np.int16)
    assert native.adapter(OnlyDlpack) == "dlpack"
    assert native.read(OnlyDlpack(array)) == native.read(array)
    assert native.adapter(OnlyDataPtr) == "data_ptr"
    assert native.read(OnlyDataPtr(640))[:5] == (640, 2, 16, False, (1, 0))
    assert native.adapter(OnlyCudaDict) == "cuda_dict"
    assert native.read(OnlyCudaDict("<f4", True))[:5] == (4096, 2, 32, True, (2, 0))


def test_bytes_like_objects_are_arrays_of_uint8():
    assert native.read(bytearray(5))[1:4] == (1, 8, False)
    assert native.read(b"12345")[1:4] == (1, 8, True)
    assert native.read((ctypes.c_double * 3)())[1:3] == (2, 64)


# ---- what the guard is told ----


def facts_of(value, **parameter):
    launch, asked = kernels.nothing("x", parameters=[Parameter("x", **parameter)])
    launch[1](value)
    return asked.calls[0]["x"]


@pytest.mark.parametrize(
    ("value", "kind", "name"),
    [
        (1, ValueKind.INT, "int32"),
        (-(2**31), ValueKind.INT, "int32"),
        (2**31, ValueKind.INT, "int64"),
        (2**63 - 1, ValueKind.INT, "int64"),
        (-(2**63), ValueKind.INT, "int64"),
        (2**63, ValueKind.INT, "uint64"),
        (2**64 - 1, ValueKind.INT, "uint64"),
        (True, ValueKind.BOOL, "bool"),
        (1.5, ValueKind.FLOAT, "float32"),
        (np.int16(3), ValueKind.INT, "int32"),
        (np.uint64(2**63), ValueKind.INT, "uint64"),
        (np.bool_(True), ValueKind.BOOL, "bool"),
        (np.float64(1), ValueKind.FLOAT, "float32"),
        (np.float16(1), ValueKind.FLOAT, "float32"),
        (ml_dtypes.bfloat16(1), ValueKind.FLOAT, "float32"),
        (np.zeros(3, np.int8), ValueKind.POINTER, "int8"),
        (np.array(3.0), ValueKind.POINTER, "float64"),
    ],
)
def test_undeclared_parameters_take_their_type_from_the_value(value, kind, name):
    argument = facts_of(value)
    assert (argument.kind, str(argument.dtype)) == (kind, name)
    if kind is not ValueKind.POINTER:
        assert argument.number == value


def test_none_is_none():
    assert facts_of(None).kind is ValueKind.NONE


@pytest.mark.parametrize(
    ("value", "divisible", "one"),
    [(16, True, False), (0, True, False), (1, False, True), (17, False, False), (-32, True, False)],
)
def test_facts_of_integers(value, divisible, one):
    argument = facts_of(value)
    assert (argument.divisible16, argument.equal1) == (divisible, one)
    excluded = facts_of(value, specialize=False)
    assert (excluded.divisible16, excluded.equal1) == (False, False)


def test_facts_of_arrays():
    storage = np.zeros(64, np.float32)
    start = -storage.ctypes.data // 4 % 4
    aligned, shifted = storage[start:], storage[start + 1 :]
    assert facts_of(aligned).aligned16
    assert not facts_of(shifted).aligned16
    assert not facts_of(aligned, align=False).aligned16
    assert not facts_of(aligned, specialize=False).aligned16
    shifted.flags.writeable = False
    assert facts_of(shifted).readonly
    assert facts_of(np.zeros((2, 3))).ndim == 2


# ---- the bytes that arrive ----


def arriving(abi, kind, value, element=None):
    """The bytes a kernel finds behind its second parameter."""
    out = np.zeros(16, np.uint8)
    asked = kernels.Asked(f"dump_{abi}", ((0, "ptr", True), (1, abi, False)))
    signature = Signature((Parameter("out"), Parameter("v", kind, element and dtype(element))))
    make_launcher("dump", signature, on_miss=asked)[1](out, value)
    return out.tobytes()


INT, FLOAT, ANY = ParameterKind.INTEGER, ParameterKind.FLOAT, ParameterKind.ANY
CODES = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"}


@pytest.mark.parametrize("abi", CODES)
def test_integers_of_every_width_arrive_whole(abi):
    unsigned, bits = abi[0] == "u", int(abi[1:])
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for value in {low, high, 0, 1, high // 3}:
        for given in (value, np.array(value, dtype=str(dtype(abi)))[()], np.array(value, dtype=str(dtype(abi)))):
            assert arriving(abi, INT, given, abi).startswith(struct.pack(CODES[abi], value))
    for value in (low - 1, high + 1, 2**70):
        with pytest.raises(ArgumentError, match=rf"dump: argument 'v' needs .*int{bits} in \[{low}, {high}\], got"):
            arriving(abi, INT, value, abi)


def test_undeclared_numbers_arrive():
    assert arriving("i32", ANY, -5).startswith(struct.pack("i", -5))
    assert arriving("i64", ANY, 2**40).startswith(struct.pack("q", 2**40))
    assert arriving("u64", ANY, 2**64 - 2).startswith(struct.pack("Q", 2**64 - 2))
    assert arriving("fp32", ANY, 0.1).startswith(struct.pack("f", 0.1))
    assert arriving("i1", ANY, True)[0] == 1
    assert arriving("i1", ANY, False)[0] == 0


def test_a_float_parameter_takes_integers_and_scalars_of_any_library():
    for value in (3, 3.0, np.float32(3), np.int8(3), np.array(3.0), ml_dtypes.bfloat16(3), True + 2):
        assert arriving("fp32", FLOAT, value, "float32").startswith(struct.pack("f", 3.0))
        assert arriving("fp64", FLOAT, value, "float64").startswith(struct.pack("d", 3.0))


def test_torch_scalars_pass_for_numbers():
    torch = pytest.importorskip("torch")
    assert arriving("fp64", FLOAT, torch.tensor(0.5), "float64").startswith(struct.pack("d", 0.5))
    assert arriving("i32", INT, torch.tensor(7), "int32").startswith(struct.pack("i", 7))
    with pytest.raises(ArgumentError, match="needs a number"):
        arriving("fp32", FLOAT, torch.zeros(2), "float32")


@pytest.mark.parametrize(("abi", "name"), [("fp16", "float16"), ("bf16", "bfloat16")])
def test_half_precision_scalars_round_to_nearest_even(abi, name):
    element = np.float16 if name == "float16" else ml_dtypes.bfloat16
    generator = np.random.default_rng(7)
    bits = generator.integers(0, 2**64, 2000, dtype=np.uint64)
    wide = bits.view(np.float64)
    # Halfway points between neighbours, and a hair to each side of them.
    codes = np.arange(0, 2**16, 37, dtype=np.uint16)
    with np.errstate(all="ignore"):
        near = codes.view(element).astype(np.float64)
        following = (codes + 1).astype(np.uint16).view(element).astype(np.float64)
        halves = (near + following) / 2
        small = np.ldexp(generator.standard_normal(1000), generator.integers(-30, 20, 1000))
        values = np.concatenate([wide, halves, np.nextafter(halves, np.inf), np.nextafter(halves, -np.inf), small])
    values = values[~np.isnan(values)]
    assert [native.narrow(float(v), name) for v in values] == [nearest(float(v), element) for v in values]
    assert arriving(abi, FLOAT, 1.0009765625, name)[:2] == np.array(1.0009765625).astype(element).tobytes()


def nearest(value, element):
    """By definition: of the two neighbours the closer one, of equally close ones the even code; exact arithmetic."""
    from fractions import Fraction

    limit = 2 ** (16 if element is np.float16 else 128)
    sign = 0x8000 if np.signbit(value) else 0
    size = Fraction(abs(value)) if np.isfinite(value) else None
    top = int(np.array(np.inf).astype(element).view(np.uint16))
    if size is None:
        return sign | top

    def exact(code):
        return Fraction(limit) if code == top else Fraction(float(np.uint16(code).view(element)))

    low, high = 0, top
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exact(middle) <= size else (low, middle)
    below, above = size - exact(low), exact(high) - size
    if above < 0:
        return sign | top
    if below == above:
        return sign | (low if low % 2 == 0 else high)
    return sign | (low if below < above else high)


def test_nan_stays_nan():
    for name, element in (("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)):
        assert np.isnan(np.uint16(native.narrow(float("nan"), name)).view(element))


def test_pointers_arrive_as_addresses():
    array = np.zeros(4)
    assert arriving("ptr", ANY, array).startswith(struct.pack("Q", array.ctypes.data))
    assert arriving("ptr", ParameterKind.POINTER, 2**63 + 16).startswith(struct.pack("Q", 2**63 + 16))
    assert arriving("ptr", ANY, None).startswith(bytes(8))


# ---- what is refused ----


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("text", "an array of numbers"),
        (object(), "got a object"),
        (1j, "got a complex"),
        (2**64, "at most 64 bits"),
        (np.array(["a"]), "an array of numbers"),
        (np.zeros(2, "M8[s]"), "an array of numbers"),
        (np.zeros(2, ">f4"), "an array of numbers"),
    ],
)
def test_values_no_kernel_takes(value, said):
    launch, asked = kernels.nothing("x")
    with pytest.raises(ArgumentError, match=f"nothing: argument 'x' needs .*{said}") as caught:
        launch[1](value)
    assert isinstance(caught.value, TypeError)
    assert not asked.calls


def test_arrays_of_another_dtype_than_declared():
    declared = Parameter("x", ParameterKind.POINTER, dtype("float32"))
    launch, _ = kernels.nothing(parameters=[declared])
    launch[1](np.zeros(3, np.float32))
    with pytest.raises(ArgumentError, match=r"'x' needs a writable float32 array, got a ndarray float64\[3\]"):
        launch[1](np.zeros(3))


def test_a_read_only_array_the_kernel_writes():
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    launch, _ = kernels.add()
    x = np.zeros(3, np.float32)
    launch[1](array, x, x, 3)
    with pytest.raises(ArgumentError, match="'out' needs a writable array"):
        launch[1](x, x, array, 3)
    written = Parameter("x", ParameterKind.POINTER, dtype("float32"), effect=Effect.WRITE)
    read = Parameter("x", ParameterKind.POINTER, dtype("float32"), effect=Effect.READ)
    with pytest.raises(ArgumentError, match="'x' needs a writable"):
        kernels.nothing(parameters=[written])[0][1](array)
    kernels.nothing(parameters=[read])[0][1](array)


def test_memory_of_another_device():
    launch, _ = kernels.nothing("x", "y")
    with pytest.raises(ArgumentError, match=r"'x' is in memory of cuda .*which cpu code cannot use"):
        launch[1](OnlyCudaDict(), 1)
    with pytest.raises(ArgumentError, match="'x' is on cpu:0 and 'y' on cuda:0"):
        launch[1](np.zeros(1), OnlyCudaDict())


def test_what_a_producer_raises_is_the_cause():
    class Broken(OnlyDlpack):
        def __dlpack__(self, **keywords):
            raise RuntimeError("no more tensors")

    launch, _ = kernels.nothing("x")
    with pytest.raises(ArgumentError, match="'x'") as caught:
        launch[1](Broken(np.zeros(1)))
    assert "no more tensors" in str(caught.value.__cause__)


def test_bools_take_only_bools():
    launch, _ = kernels.nothing(parameters=[Parameter("b", ParameterKind.BOOL, dtype("bool"))])
    launch[1](True)
    launch[1](np.bool_(False))
    launch[1](0)
    with pytest.raises(ArgumentError, match="'b' needs a bool, got the int 2"):
        launch[1](2)
    with pytest.raises(ArgumentError, match="'b' needs a bool"):
        launch[1]("yes")


@pytest.mark.parametrize("name", ["int16", "float16", "float32", "int64", "float64"])
@pytest.mark.parametrize("known", [False, True])
def test_elements_between_their_multiples_are_refused_for_code_that_runs_on_the_cpu(name, known):
    """C reads a value of N bytes at multiples of N alone: compilers assume that, whichever the processor is."""
    size = np.dtype(name).itemsize
    raw = np.zeros(64 * size + 16, np.uint8)
    start = -raw.ctypes.data % 16
    launch, _ = kernels.nothing("n", "x")
    if known:
        launch[1](1, raw[start : start + size * 8].view(name))
        launch[1](1, raw[start + size : start + size * 9].view(name))  # a multiple of its own size
    for off in range(1, size):
        array = raw[start + off : start + off + size * 8].view(name)
        with pytest.raises(ArgumentError, match="argument 'x' needs an array at a multiple of its elements' bytes"):
            launch[1](1, array)
        launch[1](1, array.copy())
    launch[1](1, raw[start + 1 :])  # bytes lie anywhere
