"""What libsilo is given that it cannot use: each has a code and a text that says what was needed and given."""

import ctypes
import os
import struct

import numpy as np
import pytest

import libsilo
from bundle_samples import sealed
from libsilo import CUDA, PAD_NAN, READONLY, Argument, Bundle, LibraryError, Queue, array, pointer
from made_bundles import write_made

F4 = np.float32
(
    FILE,
    FOREIGN,
    TRUNCATED,
    DAMAGED,
    NEWER,
    TOO_LARGE,
) = range(1, 7)
USAGE, NO_KERNEL, MISSING, NULL, KIND, DTYPE, MISALIGNED, SHAPE, GRID = range(20, 29)
NO_VARIANT, UNTRUSTED, UNSUPPORTED = 30, 31, 33
NO_DRIVER, NO_DEVICE, FAULT, MEMORY = 40, 41, 46, 60


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_made(tmp_path_factory.mktemp("made") / "made.silo")


@pytest.fixture(scope="module")
def bundle(made):
    with Bundle(made, vouch=lambda code: 1) as opened:
        yield opened


def refused(code, pattern, function, *arguments, **keywords):
    with pytest.raises(LibraryError, match=pattern) as raised:
        function(*arguments, **keywords)
    assert raised.value.code == code, raised.value
    return raised.value


# ---- files ----


def test_files_that_are_none(tmp_path, made):
    refused(FILE, "nowhere.silo: No such file", Bundle, tmp_path / "nowhere.silo")
    refused(FILE, "it is a folder; name a file in it", Bundle, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    refused(FILE, "it is not a plain file", Bundle, tmp_path / "pipe")
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"\x7fELF" + bytes(100))
    refused(FOREIGN, "foreign", Bundle, foreign)
    foreign.write_bytes(b"")
    assert refused(TRUNCATED, "foreign", Bundle, foreign).offset in (0, 2**64 - 1)


@pytest.mark.parametrize("kept", [1, 63, 64, 200, -1])
def test_files_cut_short(tmp_path, made, kept):
    cut = tmp_path / "cut.silo"
    cut.write_bytes(made.read_bytes()[:kept])
    refused(TRUNCATED, "cut.silo", Bundle, cut)


def test_damaged_files(tmp_path, made):
    data = bytearray(made.read_bytes())
    offset, length = struct.unpack_from("<QQ", data, 16)
    for at in (20, offset, offset + length - 1):
        changed = bytearray(data)
        changed[at] ^= 1
        path = tmp_path / f"{at}.silo"
        path.write_bytes(changed)
        with pytest.raises(LibraryError) as raised:
            Bundle(path)
        assert raised.value.code in (DAMAGED, TRUNCATED)
    path.write_bytes(sealed(bytes(data), b'{"format":1}', compress=False))
    assert refused(DAMAGED, "silo", Bundle, path).field != ""
    data[64] ^= 1  # of a blob: seen when it is used
    path.write_bytes(data)
    with Bundle(path, vouch=lambda code: 1) as opened:
        calls = {"add": (*[np.ones(16, F4)] * 3, 16), "strict": (np.zeros(4, np.int32), 1)}
        codes = set()
        for name, arguments in calls.items():
            try:
                opened[name](*arguments)
            except LibraryError as error:
                codes.add(error.code)
        assert codes <= {DAMAGED}


def test_newer_files(tmp_path, made):
    data = bytearray(made.read_bytes())
    struct.pack_into("<I", data, 8, 99)
    path = tmp_path / "newer.silo"
    path.write_bytes(data)
    refused(NEWER, "newer", Bundle, path)


def test_more_memory_than_is_allowed(made):
    refused(TOO_LARGE, "made.silo", Bundle, made, file_memory=64)


# ---- the program's own mistakes ----


def test_wrong_use(made, bundle):
    library, error = bundle.library, libsilo.Error()
    handle = ctypes.c_void_p()
    assert library.silo_open(None, None, ctypes.byref(handle), ctypes.byref(error)) == USAGE
    assert library.silo_open(b"x", None, None, None) == USAGE
    assert library.silo_open_memory(None, 3, b"x", None, ctypes.byref(handle), None) == USAGE
    assert library.silo_find(None, b"add", ctypes.byref(handle), None) == USAGE
    assert library.silo_launch(None, None, None, 0, None, None) == USAGE
    assert library.silo_explain(bundle["add"].handle, None, None, 0, None, None, None) == USAGE
    library.silo_close(None)
    library.silo_error_clear(None)
    options = libsilo.Options()
    name = os.fspath(made).encode()
    places = (ctypes.byref(options), ctypes.byref(handle), ctypes.byref(error))
    assert library.silo_open(name, *places) == USAGE
    assert b"set it to sizeof(silo_options)" in error.text
    options = libsilo.Options(size=ctypes.sizeof(libsilo.Options), flags=128)
    assert library.silo_open(name, ctypes.byref(options), *places[1:]) == USAGE
    later = ctypes.create_string_buffer(ctypes.sizeof(libsilo.Options) + 8)
    struct.pack_into("<Q", later, 0, len(later) - 1)
    later[ctypes.sizeof(libsilo.Options)] = 1
    assert library.silo_open(name, later, *places[1:]) == USAGE
    assert b"link a newer one" in error.text


def test_memory_that_is_not_aligned(bundle, made):
    data = made.read_bytes()
    room = ctypes.create_string_buffer(len(data) + 128)
    start = -(-ctypes.addressof(room) // 64) * 64 + 8
    handle, error = ctypes.c_void_p(), libsilo.Error()
    code = bundle.library.silo_open_memory(start, len(data), b"x", None, ctypes.byref(handle), ctypes.byref(error))
    assert (code, b"multiple of 64" in error.text) == (USAGE, True)


def test_names_of_codes(bundle):
    names = [bundle.library.silo_code_name(code) for code in range(-1, 120)]
    assert all(names)
    assert len(set(names)) > 25


# ---- calls ----


def test_an_unknown_kernel(bundle):
    refused(NO_KERNEL, "has no kernel 'ad'; it has add, bare, ", lambda: bundle["ad"])


def test_numbers_of_arguments(bundle):
    x = np.ones(4, F4)
    refused(MISSING, "add is called without out, n; its parameters: x, y, out, n, BLOCK", bundle["add"], x, x)
    refused(MISSING, "add is called without x, n", bundle["add"], libsilo.ABSENT, x, x)
    refused(USAGE, "add takes 5 arguments, 6 were given; its param", bundle["add"], x, x, x, 4, 64, 1)


def test_kinds_and_elements(bundle):
    x, bad = np.ones(4, F4), Argument(kind=77)
    refused(KIND, "add: argument 'n' needs .*, got an argument of kind 77", bundle["add"], x, x, x, bad)
    odd = Argument(kind=1, element=0x0777)
    refused(DTYPE, "argument 'y' needs .*, got .*element type 0x0777, which there is not", bundle["add"], x, odd, x, 4)
    refused(KIND, "argument 'n' needs .*, got the text 'four'", bundle["add"], x, x, x, "four")
    refused(KIND, "argument 'BLOCK' needs a constant: .*, got an array of float32", bundle["add"], x, x, x, 4, x)
    kinds = bundle["kinds"]
    values = [True, 1, 2, 3, 4, 5, 6, 7, 8, 1.5, 2.5, 3.5, 4.5]
    out = np.zeros(112, np.uint8)
    for index, wrong, pattern in (
        (0, 2, "'b' needs a bool, got the int 2"),
        (1, 128, r"'i8' needs int8 in \[-128, 127\], got the int 128"),
        (5, -1, r"'u8' needs uint8 in \[0, 255\], got the int -1"),
        (3, 1.5, r"'i32' needs int32 in .*, got the float 1.5"),
        (9, "x", "'fp16' needs a number for a float16, got the text 'x'"),
        (4, None, "'i64' needs int64 in .*, got None"),
    ):
        given = [*values]
        given[index] = wrong
        refused(KIND, pattern, kinds, out, *given)
    refused(KIND, "'out' needs a writable uint8 array, got the int 4096", kinds, 4096, *values)
    refused(DTYPE, "'out' needs a writable uint8 array, got an array of float32", kinds, x, *values)


def test_shapes_that_cannot_be(bundle):
    x = np.ones(4, F4)
    for shape in ([-1], [2, -(2**63)]):
        wrong = array(x.ctypes.data, "float32", shape)
        refused(SHAPE, "'x' needs an array without negative extents, got an array", bundle["add"], wrong, x, x, 4)
    wrong = array(x.ctypes.data, "float32", [1] * 33)
    refused(SHAPE, "'x' needs an array of 0 to 32 dimensions, got .* rank 33", bundle["add"], wrong, x, x, 4)
    wrong = Argument(kind=2, element=0x0220, rank=2)
    refused(USAGE, "an array with a shape", bundle["add"], wrong, x, x, 4)
    refused(SHAPE, "needs the shape of argument 'out'", bundle["shaped"], pointer(x.ctypes.data, "int32"), 4)
    out = np.zeros(5, np.int32)
    error = refused(SHAPE, r"argument out: shape \(5,\), this variant was built for \(4,\)", bundle["fixed"], out, 1)
    assert "fixed" in error.text


def test_null_pointers(bundle):
    x, none = np.ones(16, F4), pointer(None)
    refused(NULL, "add: argument 'y' needs memory, which the kernel reads or writes", bundle["add"], x, none, x, 16)
    refused(NULL, "'out'", bundle["add"], x, x, array(None, "float32", [16]), 16)
    bundle["add"](x, x, array(None, "float32", [0]), -5)  # without elements it needs none


def test_memory_that_must_not_be_written(bundle):
    out = np.zeros(4, np.int32)
    out.flags.writeable = False
    error = refused(KIND, "argument 'out' needs a writable array.*read-only", bundle["bare"], out, 1, grid=(1, 1, 1))
    assert error.text.startswith("bare:")
    x, kept = np.ones(16, F4), pointer(np.ones(16, F4).ctypes.data, flags=READONLY)
    bundle["add"](kept, x, np.zeros(16, F4), 16)
    with pytest.raises(LibraryError, match="read-only"):
        bundle["add"](x, x, kept, 16)


def test_alignment(bundle):
    out = np.zeros(64, np.uint8)
    start = -(-out.ctypes.data // 16) * 16
    bundle["strict"](pointer(start, "int32"), 1)
    refused(MISALIGNED, "argument '?out'? is not at a multiple of 16", bundle["strict"], pointer(start + 4, "int32"), 1)


def test_elements(bundle):
    x = np.ones(16, np.float64)
    error = refused(
        DTYPE, "add: argument '.*' is an array of float64, and it takes float32", bundle["add"], x, x, x, 16
    )
    assert error.details == "" or "float64" in error.details


def test_grids(bundle):
    out = np.zeros(4, np.int32)
    refused(GRID, "bare has no declared grid", bundle["bare"], out, 1)
    refused(GRID, "bare: grid dimension y is -3, which is negative", bundle["bare"], out, 1, grid=(1, -3, 1))
    refused(GRID, "dimension x is limited to 4294967295", bundle["bare"], out, 1, grid=(1 << 32, 1, 1))
    refused(GRID, r"more than 2\^53 programs", bundle["bare"], out, 1, grid=(1 << 31, 1 << 31, 1))
    refused(GRID, "shaped: the declared grid gives -5 as dimension z", bundle["shaped"], out, -4)


def test_elements_between_their_multiples(bundle):
    x = np.ones(16, F4)
    odd = np.zeros(68, np.uint8)[1:65].view(F4)
    for _ in range(2):
        refused(
            MISALIGNED, r"add: argument 'y' begins at .* not a multiple of the 4 bytes", bundle["add"], x, odd, x, 16
        )
        refused(MISALIGNED, "argument 'out'", bundle["add"], x, x, pointer(odd.ctypes.data), 16)
    bundle["add"](x, x, x, 16)


def test_options(bundle):
    x = np.ones(16, F4)
    refused(KIND, "add: option 'num_warps' needs .*, got an array", bundle["add"], x, x, x, 16, num_warps=x)
    for name in ("num_wraps", "x", "BLOCK_SIZES", ""):
        refused(USAGE, f"add: there is no option '{name}'", bundle["add"], x, x, x, 16, num_warps=4, **{name: 1})
        refused(USAGE, f"add: there is no option '{name}'", bundle["add"].warmup, x, x, x, 16, **{name: 1})
    refused(NO_VARIANT, "no variant fits add", bundle["add"], x, x, x, 16, maxnreg=64)  # one that compilers have
    call = libsilo.Call(None, None, 3)
    error = libsilo.Error()
    arguments = (Argument * 4)(*(libsilo.argument(one) for one in (x, x, x, 16)))
    queue = Queue(1, 0, None)
    handle = bundle["add"].handle
    where = (ctypes.byref(call), ctypes.byref(error))
    assert bundle.library.silo_launch(handle, ctypes.byref(queue), arguments, 4, *where) == USAGE


def test_no_variant_says_why_not_each(bundle):
    x = np.ones(16, F4)
    error = refused(NO_VARIANT, "no variant fits add", bundle["add"], x, x, x, 16, num_warps=3)
    lines = error.details.splitlines()
    assert len(lines) == 12
    assert all(": " in line for line in lines)


def test_untrusted_code(made):
    x = np.ones(16, F4)
    with Bundle(made) as opened:
        refused(UNTRUSTED, "add: its CPU code in .* nobody was asked to vouch for it", opened["add"], x, x, x, 16)
    with Bundle(made, vouch=lambda code: 0) as opened:
        refused(UNTRUSTED, "does not vouch for it", opened["add"], x, x, x, 16)
    with Bundle(made, vouch=lambda code: 2) as opened:
        refused(UNTRUSTED, "does not vouch for it", opened["add"], x, x, x, 16)


def test_kernels_that_fail(bundle):
    out = np.zeros(4, np.int32)
    for _ in range(2):
        error = refused(
            FAULT,
            "fails: assertion failed: n < 3 .code 7. from 'fails' on cpu:0; grid=.*, config",
            bundle["fails"],
            out,
            3,
        )
        assert error.driver_code == 7
    bundle["bare"](out, 1, grid=(4, 1, 1))  # and the program goes on
    assert out.tolist() == [4000, 4001, 4002, 4003]


def test_out_of_memory(bundle):
    refused(MEMORY, "hungry: no memory for the scratch", bundle["hungry"], np.zeros(4, np.int32), 1)


def test_code_that_no_driver_launches(bundle):
    refused(
        UNSUPPORTED, "odd: its code is of kind hsaco, which no driver launches", bundle["odd"], np.zeros(4, "i4"), 1
    )


# ---- devices ----


def test_queues_of_nothing(bundle):
    x = np.ones(16, F4)
    refused(USAGE, "add: a queue of device kind 7", bundle["add"], x, x, x, 16, queue=Queue(7, 0, None))
    refused(NO_DEVICE, "no device cpu:1", bundle["add"], x, x, x, 16, queue=Queue(1, 1, None))


def test_no_driver(made):
    with Bundle(made, cuda_library=b"/nowhere/libcuda.so.1") as opened:
        x = np.ones(16, F4)
        error = refused(NO_DRIVER, "add: no cuda driver here", opened["add"], x, x, x, 16, queue=Queue(CUDA, 0, None))
        assert "/nowhere/libcuda.so.1" in error.text


# ---- descriptors ----


@pytest.mark.parametrize(
    ("code", "pattern", "changed"),
    [
        (MISALIGNED, "has its base at .*, which is not a multiple of 16", {"shift": 8}),
        (NULL, "has a base without memory", {"address": None}),
        (SHAPE, r"has shape\[0\] = 0; extents are 1 to", {"shape": [0, 64]}),
        (SHAPE, r"has strides\[1\] = 2; the last axis is contiguous", {"strides": [64, 2]}),
        (SHAPE, r"has strides\[0\] = 3 elements", {"strides": [3, 1]}),
        (SHAPE, "power of two", {"block": [64, 33]}),
        (SHAPE, "has 6 dimensions; there are 1 to 5", {"shape": [1] * 6, "block": [1] * 6, "strides": [16] * 5 + [1]}),
        (DTYPE, "has elements|needs a tensor descriptor of float16, got .* float32", {"name": "float32"}),
        (KIND, "needs a tensor descriptor of float16, got an array", {"block": None}),
    ],
)
def test_descriptors(bundle, code, pattern, changed):
    memory = np.zeros(64 * 64, np.float16)
    address = -(-memory.ctypes.data // 16) * 16 + changed.pop("shift", 0)
    given = {"address": address, "name": "float16", "shape": [32, 64], "block": [64, 32], "flags": 0, **changed}
    refused(code, pattern, bundle["described"], array(**given), np.zeros(4, np.int32))


def test_descriptors_that_pad(bundle):
    memory = np.zeros(64, np.int16)
    given = array(memory.ctypes.data // 16 * 16, "int16", [4, 8], block=[4, 8], flags=PAD_NAN)
    with pytest.raises(LibraryError, match=r"float16|pads with NaN"):
        bundle["described"](given, np.zeros(4, np.int32))
