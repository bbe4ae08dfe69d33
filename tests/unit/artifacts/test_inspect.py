"""Binaries made by hand, so that no compiler is needed; tests of the Triton compiler compare with real ones."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples.made_binaries import make_cubin, make_elf, make_hsaco, pack
from silo.artifacts.binary_inspection import BinaryKernel, free_of_folders, inspect_binary, read_msgpack
from silo.errors import CompileError


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
