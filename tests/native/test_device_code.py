"""The parameters of a kernel as its code states them: what C reads is what Python's reader does, whatever the bytes."""

import random
import struct
import subprocess
from pathlib import Path

import pytest

from samples import core_native
from samples.binary_samples import add_by_triton
from samples.made_binaries import make_cubin, make_elf, make_hsaco, pack, svalue
from sanitized_program import build_sanitized
from silo.artifacts.binary_inspection import inspect_binary
from silo.errors import CompileError

HERE = Path(__file__).parent
ROOM = 4  # as in device_code_check.c


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    flags = ["-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Werror", "-Wall"]
    sources = [
        HERE / "device_code_check.c",
        *(core_native.NATIVE / f"{name}.c" for name in ("device_code", "error")),
    ]
    command = [core_native.compiler("gcc"), *flags, f"-I{core_native.NATIVE}", *sources]
    program = build_sanitized(tmp_path_factory.mktemp("device_code") / "check", *command)

    def read(*files, entry="kernel"):
        given = b"".join(struct.pack("<I", len(data)) + data for data in files)
        done = subprocess.run([str(program), entry], input=given, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return [line.strip() for line in done.stdout.decode("utf-8", "replace").splitlines()]

    return read


def by_python(data, kind, entry="kernel"):
    """What Python reads, as the check prints it; None where it reads nothing."""
    try:
        kernel = next((kernel for kernel in inspect_binary(data, kind) if kernel.entry == entry), None)
    except CompileError:
        return None
    if kernel is None:
        return None
    places = [f"{offset}+{size}" for offset, size in kernel.parameters]
    return " ".join(places[:ROOM] + ["?"] * len(places[ROOM:]))


def cubin(info):
    return make_elf([(".nv.info.kernel", 0x70000000, 0, info, None)], machine=190, os_abi=0x41, flags=0)


def parameter(ordinal, offset, size):
    return svalue(0x17, struct.pack("<IHHI", 0, ordinal, offset, (size << 18) | 0x1F000))


def test_both_kinds_of_code_are_read_as_python_reads_them(read):
    files = [
        make_cubin(),
        make_cubin(old=True),
        make_hsaco(),
        make_hsaco(**{".args": None}),
        make_hsaco(**{".args": []}),
    ]
    kinds = ["cubin", "cubin", "hsaco", "hsaco", "hsaco"]
    assert read(*files) == [by_python(data, kind) for data, kind in zip(files, kinds, strict=True)]
    assert read(make_cubin(), make_hsaco()) == ["0+8 8+4", "0+8 8+4"]
    many = make_hsaco(**{".args": [{".offset": 8 * i, ".size": 8, ".value_kind": "by_value"} for i in range(300)]})
    assert read(many) == [by_python(many, "hsaco")]


def test_what_triton_compiles_is_read_as_python_reads_it(read):
    for target, kind in (("cuda:sm_90", "cubin"), ("hip:gfx942", "hsaco")):
        blob, launch = add_by_triton(target)
        assert read(blob, entry=launch.entry) == [by_python(blob, kind, launch.entry)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the code cannot be read: it is no 64-bit ELF object"),
        (b".version 8.0\n.target sm_80\n", "only a driver knows what it takes"),
        (make_elf([], machine=62, os_abi=0, flags=0), "the code is for machine 62, which is no GPU"),
        (make_elf([], machine=190, os_abi=0, flags=0), "the code has no kernel 'kernel'"),
        (make_elf([], machine=224, os_abi=0, flags=0), "it has no metadata"),
        (make_hsaco(**{".name": "other"}), "the code has no kernel 'kernel'"),
        (make_hsaco(**{".args": [{".offset": 0, ".value_kind": "by_value"}]}), "lacks the place of an argument"),
        (make_hsaco(**{".args": 5}), "no list of arguments"),
        (cubin(parameter(0, 0, 8) + parameter(0, 0, 8)), "of a parameter twice"),
        (cubin(parameter(1, 0, 8)), "does not tell of every parameter"),
        (cubin(struct.pack("<BBH", 4, 0x17, 12) + b"1234"), "an attribute of .nv.info is cut off"),
    ],
)
def test_what_is_not_read_is_an_error_that_says_why(read, data, said):
    (line,) = read(data)
    assert said in line, line


def test_damaged_code_is_refused_or_read_as_python_reads_it(read):
    """Cut, and with bytes changed; the program runs under the sanitizers."""
    dice = random.Random(5)
    files = []
    for whole, kind in ((make_cubin(), "cubin"), (make_hsaco(), "hsaco")):
        files += [(whole[:length], kind) for length in range(0, len(whole), 7)]
        for _ in range(1500):
            data = bytearray(whole)
            for _ in range(dice.randint(1, 4)):
                data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
            files.append((bytes(data), kind))
    files += [(make_hsaco(**{".args": deep(20)}), "hsaco"), (make_hsaco(**{".other": deep(200)}), "hsaco")]
    said = read(*(data for data, _ in files))
    assert len(said) == len(files)
    taken = 0
    for line, (data, kind) in zip(said, files, strict=True):
        expected = by_python(data, kind)
        if not line.startswith("the code") and expected is not None:
            taken += 1
            assert line == expected
    assert taken > 100


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def test_a_long_list_of_names_that_lead_nowhere_ends(read):
    body = pack({"amdhsa.kernels": []}) * 3
    note = struct.pack("<III", 7, len(body), 32) + b"AMDGPU\0\0" + body
    (line,) = read(make_elf([(".note", 7, 0, note, None)], machine=224, os_abi=64, flags=0))
    assert "the code has no kernel" in line
