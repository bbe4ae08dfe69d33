"""Binaries made by hand, so that no compiler is needed; tests of the Triton compiler compare with real ones."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo.artifacts.inspect import BinaryKernel, inspect_binary
from silo.artifacts.msgpack import read_msgpack
from silo.artifacts.strip import free_of_folders
from silo.errors import CompileError


def make_elf(sections, *, machine, os_abi, flags):
    """``sections``: (name, type, link, data, size or None)."""
    names = b"\0"
    offsets = []
    for name, *_ in [*sections, (".shstrtab",)]:
        offsets.append(len(names))
        names += name.encode() + b"\0"
    everything = [*sections, (".shstrtab", 3, 0, names, None)]
    body = b""
    headers = [struct.pack("<IIQQQQIIQQ", *([0] * 10))]
    for offset, (_name, kind, link, data, size) in zip(offsets, everything, strict=True):
        headers.append(struct.pack("<IIQQQQIIQQ", offset, kind, 0, 0, 64 + len(body), size or len(data), link, 0, 1, 0))
        body += data
    ident = b"\x7fELF" + bytes([2, 1, 1, os_abi, 8]) + bytes(7)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        ident,
        2,
        machine,
        1,
        0,
        0,
        64 + len(body),
        flags,
        64,
        0,
        0,
        64,
        len(headers),
        len(headers) - 1,
    )
    return header + body + b"".join(headers)


def svalue(code, body):
    return struct.pack("<BBH", 4, code, len(body)) + body


def make_cubin(*, old=False, registers=40, frame=16, with_registers=True):
    strings = b"\0kernel\0"
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0) + struct.pack("<IBBHQQ", 1, 0x12, 0, 4, 0, 64)
    general = svalue(0x11, struct.pack("<II", 1, frame))
    if with_registers:
        general = svalue(0x2F, struct.pack("<II", 1, registers)) + general
    parameters = (
        struct.pack("<BBH", 3, 0x19, 12)  # a short form: no bytes follow
        + svalue(0x17, struct.pack("<IHHI", 0, 1, 8, (4 << 18) | 0x1F000))
        + svalue(0x17, struct.pack("<IHHI", 0, 0, 0, (8 << 18) | 0x1F000))
        + struct.pack("<BBH", 1, 0x60, 0)
    )
    return make_elf(
        [
            (".strtab", 3, 0, strings, None),
            (".symtab", 2, 1, symbols, None),
            (".nv.info", 0x70000000, 2, general, None),
            (".nv.info.kernel", 0x70000000, 2, parameters, None),
            (".nv.shared.kernel", 8, 0, b"", 1024),
        ],
        machine=190,
        os_abi=0x33 if old else 0x41,
        flags=0x500550 if old else 0x6005A04,
    )


def pack(value):
    """MessagePack, enough of it to write metadata."""
    if isinstance(value, dict):
        return bytes([0x80 | len(value)]) + b"".join(pack(k) + pack(v) for k, v in value.items())
    if isinstance(value, list):
        return struct.pack(">BH", 0xDC, len(value)) + b"".join(map(pack, value))
    if isinstance(value, str):
        return struct.pack(">BB", 0xD9, len(value)) + value.encode()
    return struct.pack(">BI", 0xCE, value) if value > 127 else bytes([value])


def make_hsaco(**changes):
    kernel = {
        ".name": "kernel",
        ".vgpr_count": 512,
        ".vgpr_spill_count": 188,
        ".private_segment_fixed_size": 628,
        ".group_segment_fixed_size": 64,
        ".args": [
            {".offset": 0, ".size": 8, ".value_kind": "global_buffer"},
            {".offset": 8, ".size": 4, ".value_kind": "by_value"},
            {".offset": 16, ".size": 4, ".value_kind": "hidden_block_count_x"},
        ],
        **changes,
    }
    kernel = {name: value for name, value in kernel.items() if value is not None}
    body = pack({"amdhsa.kernels": [kernel], "amdhsa.target": "amdgcn-amd-amdhsa--gfx90a:xnack+"})
    padding = bytes(-len(body) % 4)
    note = struct.pack("<III", 7, len(body), 32) + b"AMDGPU\0\0" + body + padding
    other = struct.pack("<III", 4, 4, 3) + b"GNU\0" + b"\1\2\3\4"
    return make_elf([(".note", 7, 0, other + note, None)], machine=224, os_abi=64, flags=0x53F)


def test_cubin_facts():
    assert inspect_binary(make_cubin(), "cubin") == (
        BinaryKernel(
            entry="kernel",
            arch="sm_90",
            registers=40,
            spills=4,
            local_bytes=16,
            shared_bytes=1024,
            parameters=((0, 8), (8, 4)),
        ),
    )


def test_the_older_cubin_layout_keeps_the_arch_elsewhere():
    (kernel,) = inspect_binary(make_cubin(old=True, frame=0), "cubin")
    assert (kernel.arch, kernel.spills) == ("sm_80", 0)


def test_hsaco_facts():
    assert inspect_binary(make_hsaco(), "hsaco") == (
        BinaryKernel(
            entry="kernel",
            arch="gfx90a",
            registers=512,
            spills=188,
            local_bytes=628,
            shared_bytes=64,
            parameters=((0, 8), (8, 4)),
        ),
    )


def test_a_kernel_without_arguments_has_no_list():
    (kernel,) = inspect_binary(make_hsaco(**{".args": None}), "hsaco")
    assert kernel.parameters == ()


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"", "cubin", "no ELF"),
        (b"MZ" + bytes(100), "cubin", "no ELF"),
        (make_hsaco(), "cubin", "machine 224"),
        (make_cubin(), "hsaco", "machine 190"),
        (make_cubin()[:200], "cubin", "section headers"),
        (make_cubin(with_registers=False), "cubin", "registers kernel uses"),
        (make_hsaco(**{".vgpr_count": None}), "hsaco", "lacks .vgpr_count"),
        (make_hsaco(**{".name": 7}), "hsaco", "no text for .name"),
        (make_elf([], machine=224, os_abi=64, flags=0), "hsaco", "no AMDGPU metadata"),
        (make_elf([], machine=190, os_abi=0x41, flags=0), "cubin", ".nv.info"),
        (make_cubin(), "so", "kind so"),
    ],
)
def test_what_cannot_be_read_is_named(data, kind, message):
    with pytest.raises(CompileError, match=message):
        inspect_binary(data, kind)


@given(
    kind=st.sampled_from(["cubin", "hsaco"]),
    edits=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.integers(0, 64),
)
def test_any_bytes_are_read_or_refused(kind, edits, cut):
    data = bytearray(make_cubin() if kind == "cubin" else make_hsaco())
    for at, value in edits:
        data[at % len(data)] = value
    del data[len(data) - cut :]
    try:
        kernels = inspect_binary(bytes(data), kind)
    except CompileError as error:
        assert str(error)  # noqa: PT017  # an error is as good as an answer; anything else fails the test
    else:
        assert kernels
        assert all(isinstance(kernel.registers, int) for kernel in kernels)


@given(st.binary(max_size=200))
def test_msgpack_reads_or_refuses(data):
    try:
        read_msgpack(data)
    except CompileError as error:
        assert "offset" in str(error)  # noqa: PT017  # as above


def test_msgpack_limits():
    with pytest.raises(CompileError, match="too deeply"):
        read_msgpack(b"\x91" * 64)
    with pytest.raises(CompileError, match="too deeply or too many"):
        read_msgpack(b"\xdd\x7f\xff\xff\xff" + bytes(200_000))
    assert read_msgpack(pack({"a": [1, 300, "x"]})) == {"a": [1, 300, "x"]}
    assert read_msgpack(b"\xff") == -1
    assert read_msgpack(b"\xd1\xff\x00") == -256


def test_a_path_of_the_build_folder_is_found(tmp_path):
    data = b"code\0" + str(tmp_path).encode() + b"/kernels.py\0more"
    found = free_of_folders(data, [Path("/"), tmp_path])
    assert not found
    assert "kernels.py" in found.reason
    assert "byte 5" in found.reason
    assert free_of_folders(b"code", [tmp_path])
    assert free_of_folders(b"a/b", [Path("/")])
