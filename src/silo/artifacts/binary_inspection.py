"""Reads device binaries: the registers, spills, parameters and entry points recorded there, and absolute paths.

NVIDIA (``cubin``). ``.nv.info`` and ``.nv.info.<entry>`` are lists of attributes: a format byte, an attribute byte, and
either a 16-bit value or a 16-bit size with that many bytes. NVIDIA does not specify them; the names below are printed
by ``cuobjdump -elf``. The meaning of each was compared with the column of ``cuobjdump --dump-resource-usage`` that is
named in brackets:

- ``REGCOUNT`` (0x2f): symbol, 32-bit registers per thread (``REG``);
- ``FRAME_SIZE`` (0x11): symbol, bytes of a thread's own stack frame (``STACK``), which holds spilled registers;
- ``KPARAM_INFO`` (0x17): index, ordinal, offset, and the size in bits 18 to 31 of the last word;
- ``REQNTID`` (0x10), ``MAX_THREADS`` (0x05), ``CTA_PER_CLUSTER`` (0x3d): three 32-bit numbers each, the values of
  ``.reqntid``, ``.maxntid`` and ``.reqnctapercluster`` (compared with ptxas of CUDA 12 and 13);
- ``.nv.shared.<entry>``: its size is the statically allocated shared memory (``SHARED``).

AMD (``hsaco``). The note ``NT_AMDGPU_METADATA`` (LLVM, "User Guide for AMDGPU Backend", code object metadata) is a
MessagePack map; ``amdhsa.kernels`` lists each kernel with ``.vgpr_count``, ``.vgpr_spill_count`` and so on. The reader
of MessagePack takes maps, arrays, strings, binary, integers, bools, floats and nil; it rejects extension types, which
code objects do not use. It limits the nesting and the number of items, so that no input makes it run long or recurse
deeply.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from silo.artifacts.elf import Elf, read_elf
from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import CompileError

__all__ = ["BinaryKernel", "Item", "free_of_folders", "inspect_binary", "read_msgpack"]

# ---- A bounded reader of MessagePack that reads the metadata note of AMD code objects ----


Item: TypeAlias = "bool | int | float | str | bytes | list[Item] | dict[str, Item] | None"

_MAX_DEPTH = 16
_MAX_ITEMS = 100_000

_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_SIZES = {1: ">B", 2: ">H", 4: ">I"}


def read_msgpack(data: bytes) -> Item:
    """Decodes the MessagePack item at the start of ``data``.

    Raises:
        CompileError: the item is truncated, too deep, too long, or of a type that this reader does not support.

    >>> read_msgpack(bytes([0x81, 0xA1, 0x61, 0x07]))
    {'a': 7}
    """
    return _Reader(data).item(0)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._items = 0

    def item(self, depth: int) -> Item:
        self._items += 1
        if depth > _MAX_DEPTH or self._items > _MAX_ITEMS:
            raise self._error("nested too deeply or too many items")
        tag = self._number(">B")
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 0x100
        if tag < 0x90:
            return self._map(tag & 0x0F, depth)
        if tag < 0xA0:
            return self._array(tag & 0x0F, depth)
        if tag < 0xC0:
            return self._text(tag & 0x1F)
        if tag in _NUMBERS:
            return self._value(_NUMBERS[tag])
        match tag:
            case 0xC0:
                return None
            case 0xC2 | 0xC3:
                return tag == 0xC3
            case 0xC4 | 0xC5 | 0xC6:
                return self._take(self._number(_SIZES[1 << (tag - 0xC4)]))
            case 0xD9 | 0xDA | 0xDB:
                return self._text(self._number(_SIZES[1 << (tag - 0xD9)]))
            case 0xDC | 0xDD:
                return self._array(self._number(_SIZES[2 << (tag - 0xDC)]), depth)
            case 0xDE | 0xDF:
                return self._map(self._number(_SIZES[2 << (tag - 0xDE)]), depth)
            case _:
                raise self._error(f"type 0x{tag:02x} is not read")

    def _map(self, count: int, depth: int) -> Item:
        result: dict[str, Item] = {}
        for _ in range(count):
            key = self.item(depth + 1)
            if not isinstance(key, str):
                raise self._error("a key of a map is not a string")
            result[key] = self.item(depth + 1)
        return result

    def _array(self, count: int, depth: int) -> Item:
        return [self.item(depth + 1) for _ in range(count)]

    def _text(self, size: int) -> str:
        return self._take(size).decode("utf-8", "backslashreplace")

    def _number(self, form: str) -> int:
        value = self._value(form)
        assert isinstance(value, int)
        return value

    def _value(self, form: str) -> int | float:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return value

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise self._error(f"{size} bytes are wanted, {len(self._data) - self._at} are left")
        chunk = self._data[self._at : end]
        self._at = end
        return chunk

    def _error(self, label: str) -> CompileError:
        return CompileError(f"the metadata of the binary cannot be read: {label} (offset {self._at})")


# ---- Resources recorded in a device binary ----


_MACHINE_CUDA = 190
_MACHINE_AMDGPU = 224
# The ELF header's OS ABI in files of CUDA 12 and older. There the low byte of the flags is the compute capability; in
# files of newer versions the second byte is the compute capability.
_OS_ABI_CUDA_OLD = 0x33

_INFO_VALUE = 4  # EIFMT_SVAL: a 16-bit size follows, and then that many bytes
_INFO_KPARAM = 0x17
_INFO_FRAME_SIZE = 0x11
_INFO_REGCOUNT = 0x2F
_INFO_REQNTID = 0x10
_INFO_MAX_THREADS = 0x05
_INFO_CLUSTER = 0x3D

_NOTE_AMDGPU_METADATA = 32
_SHT_NOTE = 7


@dataclass(frozen=True, slots=True)
class BinaryKernel:
    """One kernel of a binary. Limits are None if the binary does not state them.

    - ``arch``: ``sm_NN`` (a binary does not distinguish ``sm_90`` from ``sm_90a``) or ``gfxNNN``;
    - ``registers``: the 32-bit vector registers of a thread;
    - ``spills``: the 32-bit values that a thread keeps in local memory because registers ran out; for NVIDIA, the
      whole stack frame of a thread, as the driver reports it;
    - ``local_bytes``: the local memory of a thread;
    - ``shared_bytes``: the statically allocated shared memory;
    - ``parameters``: the offset and the size in bytes of each parameter, in order;
    - ``required_block``: the only block size that the kernel can be launched with;
    - ``most_threads``: the most threads of a block;
    - ``cluster``: the number of blocks of a cluster.
    """

    entry: str
    arch: str
    registers: int
    spills: int
    local_bytes: int
    shared_bytes: int
    parameters: tuple[tuple[int, int], ...]
    required_block: tuple[int, int, int] | None = None
    most_threads: int | None = None
    cluster: tuple[int, int, int] | None = None


def inspect_binary(data: bytes, kind: str) -> tuple[BinaryKernel, ...]:
    """Returns the kernels of a ``cubin`` or ``hsaco``, sorted by name.

    Raises:
        CompileError: the file is of another kind, truncated or damaged, or lacks a register count or
            other required data.
    """
    if kind not in ("cubin", "hsaco"):
        raise CompileError(f"a blob of kind {kind} says nothing of its registers; cubin and hsaco do")
    elf = read_elf(data)
    expected = _MACHINE_CUDA if kind == "cubin" else _MACHINE_AMDGPU
    if elf.machine != expected:
        raise CompileError(f"the binary cannot be read as {kind}: it is for machine {elf.machine}, not {expected}")
    kernels = _cuda_kernels(elf) if kind == "cubin" else _hip_kernels(elf)
    if not kernels:
        raise CompileError(f"the {kind} holds no kernel")
    return tuple(sorted(kernels, key=lambda kernel: kernel.entry))


def _attributes(data: bytes) -> list[tuple[int, bytes]]:
    """Returns the code and the bytes of each attribute of a ``.nv.info`` section.

    Attributes with a 16-bit value in place of a size and bytes are skipped.
    """
    attributes: list[tuple[int, bytes]] = []
    at = 0
    while at + 4 <= len(data):
        form, code, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _INFO_VALUE:
            continue
        if at + size > len(data):
            raise CompileError(f"the binary cannot be read: .nv.info: attribute 0x{code:02x} of {size} bytes at {at}")
        attributes.append((code, data[at : at + size]))
        at += size
    return attributes


def _cuda_kernels(elf: Elf) -> list[BinaryKernel]:
    shift = 0 if elf.os_abi == _OS_ABI_CUDA_OLD else 8
    arch = f"sm_{(elf.flags >> shift) & 0xFF}"
    info = elf.section(".nv.info")
    if info is None:
        raise CompileError("the cubin has no .nv.info section")
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    for code, body in _attributes(info.data):
        if code in (_INFO_REGCOUNT, _INFO_FRAME_SIZE) and len(body) == 8:
            symbol, value = struct.unpack("<II", body)
            (registers if code == _INFO_REGCOUNT else frames)[elf.symbol_name(symbol)] = value
    kernels: list[BinaryKernel] = []
    for section in elf.sections:
        entry = section.name.removeprefix(".nv.info.")
        if entry == section.name:
            continue
        if entry not in registers:
            raise CompileError(f"the cubin does not say how many registers {entry} uses")
        frame = frames.get(entry, 0)
        shared = elf.section(f".nv.shared.{entry}")
        sizes = _cuda_sizes(section.data)
        max_threads = sizes.get(_INFO_MAX_THREADS)
        kernels.append(
            BinaryKernel(
                entry=entry,
                arch=arch,
                registers=registers[entry],
                spills=frame // 4,
                local_bytes=frame,
                shared_bytes=0 if shared is None else shared.size,
                parameters=_cuda_parameters(section.data),
                required_block=sizes.get(_INFO_REQNTID),
                most_threads=None if max_threads is None else math.prod(max_threads),
                cluster=sizes.get(_INFO_CLUSTER),
            )
        )
    return kernels


def _cuda_parameters(info: bytes) -> tuple[tuple[int, int], ...]:
    ordinals: dict[int, tuple[int, int]] = {}
    for code, body in _attributes(info):
        if code == _INFO_KPARAM and len(body) == 12:
            _, ordinal, offset, packed = struct.unpack("<IHHI", body)
            ordinals[ordinal] = (offset, packed >> 18)
    return tuple(ordinals[ordinal] for ordinal in sorted(ordinals))


def _cuda_sizes(info: bytes) -> dict[int, tuple[int, int, int]]:
    """Maps the code of each attribute that is a block size or a cluster size to the three numbers of that size.

    ``info`` is the content of a ``.nv.info`` section.
    """
    codes = (_INFO_REQNTID, _INFO_MAX_THREADS, _INFO_CLUSTER)
    return {code: struct.unpack("<III", body) for code, body in _attributes(info) if code in codes and len(body) == 12}


def _hip_kernels(elf: Elf) -> list[BinaryKernel]:
    metadata = _amd_metadata(elf)
    target = _text(metadata, "amdhsa.target")
    # the name of a generic processor, for example gfx9-4-generic, contains dashes
    arch = target[target.find("-gfx") + 1 :].partition(":")[0]
    return [_hip_kernel(kernel, arch) for kernel in _list(metadata, "amdhsa.kernels")]


def _hip_kernel(kernel: Item, arch: str) -> BinaryKernel:
    parameters = tuple(
        (_number(argument, ".offset"), _number(argument, ".size"))
        for argument in _list(kernel, ".args")
        if not _is_hidden(argument)
    )
    return BinaryKernel(
        entry=_text(kernel, ".name"),
        arch=arch,
        registers=_number(kernel, ".vgpr_count"),
        spills=_number(kernel, ".vgpr_spill_count"),
        local_bytes=_number(kernel, ".private_segment_fixed_size"),
        shared_bytes=_number(kernel, ".group_segment_fixed_size"),
        parameters=parameters,
        required_block=_required_block(kernel),
        most_threads=max_threads
        if isinstance(max_threads := _optional(kernel, ".max_flat_workgroup_size"), int)
        else None,
    )


def _optional(item: Item, name: str) -> Item:
    return item.get(name) if isinstance(item, dict) else None


def _required_block(kernel: Item) -> tuple[int, int, int] | None:
    match _optional(kernel, ".reqd_workgroup_size"):
        case [int(x), int(y), int(z)]:
            return (x, y, z)
        case _:
            return None


def _is_hidden(argument: Item) -> bool:
    """Returns whether the runtime provides the argument instead of the caller.

    Such arguments come after the kernel's declared ones.
    """
    kind = argument.get(".value_kind") if isinstance(argument, dict) else None
    return isinstance(kind, str) and kind.startswith("hidden_")


def _amd_metadata(elf: Elf) -> Item:
    for section in elf.sections:
        at = 0
        while section.type == _SHT_NOTE and at + 12 <= len(section.data):
            name_size, size, kind = struct.unpack_from("<III", section.data, at)
            body = at + 12 + (name_size + 3) // 4 * 4
            if kind == _NOTE_AMDGPU_METADATA and section.data[at + 12 : at + 18] == b"AMDGPU":
                return read_msgpack(section.data[body : body + size])
            at = body + (size + 3) // 4 * 4
    raise CompileError("the hsaco has no AMDGPU metadata note")


def _member(item: Item, name: str) -> Item:
    if not isinstance(item, dict) or name not in item:
        raise CompileError(f"the metadata of the hsaco lacks {name}")
    return item[name]


def _number(item: Item, name: str) -> int:
    value = _member(item, name)
    if not isinstance(value, int):
        raise CompileError(f"the metadata of the hsaco has no number for {name}")
    return value


def _text(item: Item, name: str) -> str:
    value = _member(item, name)
    if not isinstance(value, str):
        raise CompileError(f"the metadata of the hsaco has no text for {name}")
    return value


def _list(item: Item, name: str) -> list[Item]:
    value = _member(item, name) if isinstance(item, dict) and (name in item or name != ".args") else []
    if not isinstance(value, list):
        raise CompileError(f"the metadata of the hsaco has no list for {name}")
    return value


def free_of_folders(data: bytes, folders: Iterable[Path]) -> Decision:
    """Returns Accepted if ``data`` contains none of the absolute paths ``folders``, else Rejected with the path found.

    The root folder and folders whose path has two characters are ignored, because their paths occur in any text.

    >>> bool(free_of_folders(b"code", [Path("/home/someone/kernels")]))
    True
    """
    for folder in folders:
        text = str(folder.absolute())
        if len(text) < 3:
            continue
        at = data.find(text.encode())
        if at >= 0:
            end = data.find(b"\0", at)
            excerpt = data[at : min(end if end > 0 else len(data), at + 200)].decode("utf-8", "backslashreplace")
            return Rejected(f"the blob holds a path of this machine at byte {at}: {excerpt}")
    return Accepted("no path of the build folders inside")
