"""The handler that XLA calls on a CPU: what it launches, and what it refuses. No jax is needed."""

import ctypes
import os
import shutil
import subprocess
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import launch_kernels
from silo.errors import ArgumentError
from silo.launch import native
from xla_frames import EXECUTE, FLOAT32, INITIALIZE, INSTANTIATE, Xla, resolver

ROOT = Path(__file__).resolve().parents[2]
LAYOUT = ((0, "ptr", False), (1, "ptr", False), (2, "ptr", True), (3, "i32", False))
POINTER, INT = 1, 4
_numbers = iter(range(1, 10**6))


def keep(n=64, *, grid=(1, 1, 1), aligned=False, alias=-1, shape=None, name=None, device=0):
    """A call of ``add`` under a digest of its own."""
    digest = name or f"{next(_numbers):064x}"
    binding = native.Binding(launch_kernels.loaded("add"), LAYOUT, {})
    shape = (n,) if shape is None else shape
    native.xla_keep(
        digest,
        device,
        binding,
        ((POINTER, 2, 32, None), (POINTER, 2, 32, None), (POINTER, 2, 32, None), (INT, 0, 32, n)),
        (("x", 0, FLOAT32, 4, shape, aligned, -1), ("y", 1, FLOAT32, 4, shape, aligned, -1)),
        (("out", 2, FLOAT32, 4, shape, aligned, alias),),
        grid,
    )
    return digest


@pytest.fixture
def xla():
    return Xla("cpu")


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def test_a_launch(xla):
    x, y, out = numbers(64), numbers(64, seed=1), np.zeros(64, "float32")
    assert xla.call(keep(), (x, y), (out,)) == ""
    np.testing.assert_array_equal(out, x + y)


def test_what_the_handler_says_of_itself(xla):
    with resolver():
        found = xla.metadata()
        assert (found.version.major, found.version.minor, found.traits) == (0, 3, 0)
        assert Xla("cuda").metadata().traits == 1  # calls may be captured
        assert set(xla.stages) == {"execute", "instantiate"}
        assert set(Xla("cuda").stages) == {"execute", "initialize"}
        with pytest.raises(ValueError, match="a handler is for cpu or cuda, not tpu"):
            native.xla_handlers("tpu")


def test_batches(xla):
    digest = keep(5, shape=(5,))
    x, y = numbers(2, 3, 5), numbers(1, 3, 5, seed=1)
    out = np.zeros((2, 3, 5), "float32")
    assert xla.call(digest, (x, y), (out,)) == ""
    np.testing.assert_array_equal(out, x + y)
    one = numbers(1, 1, 5)
    assert xla.call(digest, (one, y), (out,)) == ""
    np.testing.assert_array_equal(out, np.broadcast_to(one + y, (2, 3, 5)))
    empty = np.zeros((0, 3, 5), "float32")
    assert xla.call(digest, (empty, y), (empty,)) == ""
    deep = numbers(*(1 for _ in range(9)), 5)
    assert "made for type 11 and shape 5" in xla.call(digest, (deep, deep), (deep.copy(),))


def test_arrays_that_the_call_was_not_made_for(xla):
    digest = keep()
    x, out = numbers(64), np.zeros(64, "float32")
    before = out.copy()
    for args, rets, said in (
        ((x,), (out,), "passes 1 arrays and takes 1, and was made for 2 and 1"),
        ((x, x, x), (out,), "passes 3 arrays"),
        ((x, x), (out, out), "takes 2"),
        ((x, x[:63]), (out,), "passes y an array of XLA type 11 and shape 63"),
        ((x, x), (out[:63],), "passes out an array of XLA type 11 and shape 63"),
        ((x, (x.ctypes.data, (64,), 12)), (out,), "passes y an array of XLA type 12"),
        ((x, x.reshape(1, 64)), (out,), "passes y an array of XLA type 11 and shape 1 x 64"),
        ((x, x), (out.reshape(8, 8),), "shape 8 x 8"),
        ((numbers(3, 64), numbers(2, 64)), (np.zeros((3, 64), "float32"),), "passes y an array of XLA type 11"),
        ((numbers(3, 64), numbers(3, 64)), (np.zeros((1, 64), "float32"),), "passes x an array of XLA type 11"),
        (((x.ctypes.data, (2**62, 2**62, 64), FLOAT32), x), ((0, (2**62, 2**62, 64), FLOAT32),), "passes out an"),
        (((x.ctypes.data, (), FLOAT32), x), (out,), "shape ()"),
    ):
        assert said in xla.call(digest, args, rets)
        np.testing.assert_array_equal(out, before)


def test_alignment_that_the_code_assumes(xla):
    room = np.zeros(64 + 4 + 64, "float32")
    start = -room.ctypes.data % 16 // 4
    right, wrong = room[start : start + 64], room[start + 1 : start + 65]
    digest = keep(aligned=True)
    assert xla.call(digest, (right, right), (right,)) == ""
    assert "made for arrays at multiples of 16 bytes, and XLA passes y at" in xla.call(digest, (right, wrong), (right,))
    odd = keep(5, aligned=True)
    batch = np.zeros((2, 5), "float32")
    assert "multiples of 16" in xla.call(odd, (batch, batch), (batch,))


def test_an_array_that_is_updated_is_one(xla):
    x, y = numbers(64), numbers(64, seed=1)
    wanted = x + y
    digest = keep(alias=0)
    assert xla.call(digest, (x, y), (x,)) == ""
    np.testing.assert_array_equal(x, wanted)
    assert "XLA passes out twice" in xla.call(digest, (x, y), (y,))


def test_names(xla):
    x = numbers(64)
    asked = []

    def resolve(digest, platform, device):
        asked.append((platform, device))
        if digest.endswith("a"):
            keep(name=digest)
        elif digest.endswith("b"):
            raise ArgumentError("not that one")

    with resolver(resolve):
        out = np.zeros(64, "float32")
        assert "has no attribute 'digest' of 64 characters" in xla.call(None, (x, x), (out,))
        assert "has no attribute 'digest'" in xla.call("a" * 63, (x, x), (out,))
        assert xla.call("0" * 63 + "a", (), (), stage=INSTANTIATE) == ""
        assert xla.call("0" * 63 + "a", (x, x), (out,)) == ""
        np.testing.assert_array_equal(out, 2 * x)
        assert asked == [("cpu", 0)]
        assert xla.call("0" * 63 + "b", (), (), stage=INSTANTIATE) == "silo: ArgumentError: not that one"
        assert "nobody keeps the call 00" in xla.call("0" * 63 + "c", (x, x), (out,))
        for stage in (1, INITIALIZE, 7):
            assert xla.call("0" * 63 + "d", (), (), stage=stage) == ""
        assert len(asked) == 3


def test_an_empty_grid_runs_nothing(xla):
    out = np.full(64, 7, "float32")
    assert xla.call(keep(grid=(0, 1, 1)), (out, out), (out,)) == ""
    assert (out == 7).all()


def test_calls_that_cannot_be_kept():
    binding = native.Binding(launch_kernels.loaded("add"), LAYOUT, {})
    pointer, number = (POINTER, 2, 32, None), (INT, 0, 32, 5)
    good = [
        "f" * 64,
        0,
        binding,
        (pointer, pointer, pointer, number),
        (("x", 0, 11, 4, (5,), False, -1), ("y", 1, 11, 4, (5,), False, -1)),
        (("out", 2, 11, 4, (5,), False, -1),),
        (1, 1, 1),
    ]
    for place, value, error, said in (
        (0, "f", ValueError, "a digest has 64 characters"),
        (3, (pointer, pointer, number, number), ArgumentError, "its code needs an array as parameter number 3"),
        (3, (pointer, pointer, pointer, (INT, 0, 64, 5)), ArgumentError, "needs an int32 as parameter number 4"),
        (3, (pointer, pointer), ArgumentError, "its code needs another parameter as parameter number 3"),
        (4, (("x", 9, 11, 4, (5,), False, -1),), ValueError, "an array of no parameter"),
        (4, (("x", 0, 11, 4, (-5,), False, -1),), ValueError, "that no memory holds"),
        (4, (("x", 0, 11, 4, (2**62, 2**62), False, -1),), ValueError, "that no memory holds"),
        (5, (), ValueError, "no result"),
        (5, (("out", 2, 11, 4, (5,), False, 2),), ValueError, "or that is no operand's"),
        (6, (-1, 1, 1), ArgumentError, "axis 0 of the grid is -1, which is negative"),
        (6, (2**40, 1, 1), ArgumentError, "grid"),
        (6, (2**31 - 1, 2**31 - 1, 2**31 - 1), ArgumentError, "grid"),
    ):
        wrong = list(good)
        wrong[place] = value
        with pytest.raises(error, match=said):
            native.xla_keep(*wrong)
    native.xla_keep(*good)
    native.xla_keep(*good)  # again: the first stays


def test_a_library_runs_no_calls_of_programs():
    code = native.LibraryCode(lambda *_: None, "cpu", 0, (1,))
    binding = native.Binding(native.LoadedKernel(code, "k", "k"), (), {})
    with pytest.raises(ArgumentError, match="is run by a library and not by a driver"):
        native.xla_keep("e" * 64, 0, binding, (), (), (("out", -1, 11, 4, (1,), False, -1),), (1, 1, 1))


def test_threads_keep_and_call(xla):
    failed = []

    def work(number):
        own = Xla("cpu")
        for step in range(50):
            n = 32 + (number + step) % 7
            digest = keep(n, shape=(n,), name=f"{n:064x}"[::-1])
            x, out = numbers(n, seed=step), np.zeros(n, "float32")
            if own.call(digest, (x, x), (out,)) or not np.array_equal(out, 2 * x):
                failed.append((number, step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    assert not failed


# Names of members here, and in XLA's own header.
MEMBERS = {
    "extension": ("XLA_FFI_Extension_Base", {"type": "type", "next": "next"}),
    "version": ("XLA_FFI_Api_Version", {"major": "major_version", "minor": "minor_version"}),
    "metadata": ("XLA_FFI_Metadata", {"version": "api_version", "traits": "traits"}),
    "metadata_extension": ("XLA_FFI_Metadata_Extension", {"metadata": "metadata"}),
    "error_create": ("XLA_FFI_Error_Create_Args", {"message": "message", "code": "errc"}),
    "error_of": ("XLA_FFI_Error_GetMessage_Args", {"error": "error", "message": "message"}),
    "stream_get": ("XLA_FFI_Stream_Get_Args", {"context": "ctx", "stream": "stream"}),
    "ordinal_get": ("XLA_FFI_DeviceOrdinal_Get_Args", {"context": "ctx", "ordinal": "device_ordinal"}),
    "api": (
        "XLA_FFI_Api",
        {
            "version": "api_version",
            "internal": "internal_api",
            "error_create": "XLA_FFI_Error_Create",
            "error_message": "XLA_FFI_Error_GetMessage",
            "error_destroy": "XLA_FFI_Error_Destroy",
            "stream_get": "XLA_FFI_Stream_Get",
            "device_ordinal": "XLA_FFI_DeviceOrdinal_Get",
        },
    ),
    "span": ("XLA_FFI_ByteSpan", {"text": "ptr", "length": "len"}),
    "array": ("XLA_FFI_Buffer", {"dtype": "dtype", "data": "data", "rank": "rank", "dims": "dims"}),
    "values": ("XLA_FFI_Args", {"count": "size", "types": "types", "values": "args"}),
    "attributes": ("XLA_FFI_Attrs", {"count": "size", "types": "types", "names": "names", "values": "attrs"}),
    "frame": (
        "XLA_FFI_CallFrame",
        {"api": "api", "context": "ctx", "stage": "stage", "args": "args", "rets": "rets", "attributes": "attrs"},
    ),
}


def test_the_declarations_are_those_that_jaxlib_ships(tmp_path):
    pytest.importorskip("jaxlib", reason="jaxlib, which ships XLA's header, is not installed")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax.ffi  # pyright: ignore[reportMissingImports]

    lines = []
    for own, (theirs, members) in MEMBERS.items():
        for name, other in members.items():
            where = f"offsetof(struct silo_xla_{own}, {name}) == offsetof({theirs}, {other})"
            size = f"sizeof(((struct silo_xla_{own} *)0)->{name}) == sizeof((({theirs} *)0)->{other})"
            if own != "frame" or name not in ("args", "rets", "attributes"):
                lines.append(f'_Static_assert({size}, "{own}.{name}");')
            lines.append(f'_Static_assert({where}, "{own}.{name}");')
    for name, theirs in {
        "SILO_XLA_MAJOR": "XLA_FFI_API_MAJOR",
        "SILO_XLA_EXTENSION": "XLA_FFI_Extension_Metadata",
        "SILO_XLA_BUFFER": "XLA_FFI_ArgType_BUFFER",
        "SILO_XLA_STRING": "XLA_FFI_AttrType_STRING",
        "SILO_XLA_CAPTURES": "XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE",
        "SILO_XLA_INSTANTIATE": "XLA_FFI_ExecutionStage_INSTANTIATE",
        "SILO_XLA_INITIALIZE": "XLA_FFI_ExecutionStage_INITIALIZE",
        "SILO_XLA_EXECUTE": "XLA_FFI_ExecutionStage_EXECUTE",
        "SILO_XLA_NOT_FOUND": "XLA_FFI_Error_Code_NOT_FOUND",
        "SILO_XLA_INVALID": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
        "SILO_XLA_EXHAUSTED": "XLA_FFI_Error_Code_RESOURCE_EXHAUSTED",
        "SILO_XLA_PRECONDITION": "XLA_FFI_Error_Code_FAILED_PRECONDITION",
        "SILO_XLA_INTERNAL": "XLA_FFI_Error_Code_INTERNAL",
    }.items():
        lines.append(f'_Static_assert((int){name} == (int){theirs}, "{name}");')
    from silo.integrations.jax.jax_programs import _XLA_TYPES

    short = {"bool": "PRED", "bfloat16": "BF16"}
    for name, number in _XLA_TYPES.items():
        word = short.get(name) or name.replace("uint", "U").replace("int", "S").replace("float8_", "F8").upper()
        word = word.replace("FLOAT", "F")
        lines.append(f'_Static_assert(XLA_FFI_DataType_{word} == {number}, "{name}");')
    source = tmp_path / "check.c"
    head = '#include "xla_abi.h"\n#include "xla/ffi/api/c_api.h"\n'
    source.write_text(textwrap.dedent(head) + "\n".join(lines) + "\n", encoding="utf-8")
    places = [f"-I{ROOT / 'native' / 'python'}", f"-I{ROOT / 'native' / 'core'}", f"-isystem{jax.ffi.include_dir()}"]
    done = subprocess.run(
        [compiler, "-std=c11", "-fsyntax-only", *places, str(source)], capture_output=True, text=True, check=False
    )
    if "must use 'struct' tag" in done.stderr or "unknown type name" in done.stderr:  # the header is C++ in part
        plus = shutil.which("g++") or shutil.which("c++")
        if plus is None:
            pytest.skip("needs a C++ compiler for XLA's header")
        text = source.read_text(encoding="utf-8").replace("_Static_assert", "static_assert")
        (tmp_path / "check.cpp").write_text("#define _Static_assert static_assert\n" + text, encoding="utf-8")
        done = subprocess.run(
            [plus, "-std=c++17", "-fpermissive", "-w", "-fsyntax-only", *places, str(tmp_path / "check.cpp")],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert ctypes.sizeof(ctypes.c_void_p) == 8
    assert EXECUTE == 3
