"""Files of device code: their kind, their entry points, and whether their parameters fit a layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from silo.artifacts.binary_inspection import BinaryKernel, inspect_binary
from silo.artifacts.elf import Elf, read_elf
from silo.artifacts.ptx import inspect_ptx
from silo.core.launch_info import LayoutSlot
from silo.core.plugins import drivers
from silo.core.target import Target
from silo.errors import CompileError, SourceError, TargetError

__all__ = ["DeviceCode", "check_layout", "check_parameters", "read_device_code"]

T = TypeVar("T")

_TAKEN = "taken are a cubin (NVIDIA), an hsaco (AMD code object) and PTX text"
_MACHINES = {190: "cubin", 224: "hsaco"}
_HOST_MACHINES = {3: "x86", 40: "ARM", 62: "x86-64", 183: "aarch64", 243: "RISC-V"}
_MOST_SHOWN = 300  # of parameters, in a message
_RELOCATABLE = 1  # e_type ET_REL

# First bytes of files that users pass by mistake.
_OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"\x50\xed\x55\xba", "a CUDA fatbin; take one cubin or PTX out of it with cuobjdump -xelf all (or -xptx all)"),
    (b"__CLANG_OFFLOAD_BUNDLE__", "a bundle of clang; unbundle it with clang-offload-bundler --unbundle"),
    (b"CCOB", "a compressed bundle of clang; unbundle it with clang-offload-bundler --unbundle"),
    (b"\x03\x02\x23\x07", "SPIR-V"),
    (b"BC\xc0\xde", "LLVM bitcode; compile it first"),
    (b"\xde\xc0\x17\x0b", "LLVM bitcode; compile it first"),
    (b"!<arch>", "an archive of object files"),
    (b"MTLB", "a Metal library"),
    (b"PK\x03\x04", "a zip file"),
    (b"SILOBNDL", "a bundle of Silo; open it with silo.load"),
)


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """A file of device code: its kind (``cubin``, ``hsaco``, ``ptx``), its kernels and the target it was built for.

    ``target`` is None for PTX without an arch. A cubin does not distinguish ``sm_100`` from ``sm_100a``, so its target
    is the plain form.
    """

    kind: str
    target: Target | None
    kernels: tuple[BinaryKernel, ...]

    def kernel(self, entry: str | None, name: str) -> BinaryKernel:
        """The kernel called ``entry``, or the only kernel. Raises SourceError, which lists the kernels."""
        for kernel in self.kernels:
            if kernel.entry == entry or (entry is None and len(self.kernels) == 1):
                return kernel
        listing = ", ".join(kernel.entry for kernel in self.kernels)
        if entry is None:
            raise SourceError(f"{name} holds {len(self.kernels)} kernels; say which with entry=: {listing}")
        raise SourceError(f"{name} holds no kernel {entry!r}; it has {listing}")


def read_device_code(data: bytes, name: str) -> DeviceCode:
    """Identifies and reads ``data`` by its bytes. ``name`` represents it in messages.

    Raises:
        SourceError: another kind of file, truncated or damaged; the message names it and lists the supported kinds.
    """
    if not data:
        raise SourceError(f"{name} is empty; {_TAKEN}")
    for magic, what in _OTHERS:
        if data.startswith(magic):
            raise SourceError(f"{name} is {what}; {_TAKEN}")
    if data.startswith(b"\x7fELF"):
        return _elf(data, name)
    if b".version" in data and b".target" in data:
        kernels = _read(inspect_ptx, data, name, "PTX")
        return DeviceCode("ptx", _target("ptx", kernels[0].arch, name) if kernels[0].arch else None, kernels)
    raise SourceError(f"{name} is no device code ({len(data)} bytes that start with {data[:8]!r}); {_TAKEN}")


def _elf(data: bytes, name: str) -> DeviceCode:
    elf = _read(read_elf, data, name, "an ELF file")
    kind = _MACHINES.get(elf.machine)
    if kind is None:
        what = _HOST_MACHINES.get(elf.machine, f"machine {elf.machine}")
        raise SourceError(f"{name} is host code for {what}, not device code; {_TAKEN}; {_inside(elf)}")
    if int.from_bytes(data[16:18], "little") == _RELOCATABLE:
        raise SourceError(
            f"{name} is a relocatable {kind} (made with -rdc=true or -dc), which must be linked before it is loaded; "
            "link it with nvlink, or compile without -rdc"
        )
    kernels = _read(lambda read: inspect_binary(read, kind), data, name, f"a {kind}")
    return DeviceCode(kind, _target(kind, kernels[0].arch, name), kernels)


def _target(blob: str, arch: str, name: str) -> Target:
    """The target of code of a kind of blobs: one driver loads each kind of device code."""
    (kind,) = (one.kind for one in drivers() if blob in one.blobs)
    try:
        return Target.parse(f"{kind}:{arch}")
    except TargetError as error:
        raise SourceError(
            f"{name} says it was built for {arch!r}, which is not an arch of {kind}; is it damaged?"
        ) from error


def _inside(elf: Elf) -> str:
    """Advice for a file of host code."""
    if elf.section(".nv_fatbin") is not None:
        return "it has CUDA code inside: take one cubin out of it with cuobjdump -xelf all"
    if elf.section(".hip_fatbin") is not None:
        return "it has AMD code inside: take it out with roc-obj-extract"
    return "shared objects for the CPU are not taken, kernels for it are compiled from source (silo.kernel)"


def _read(reader: Callable[[bytes], T], data: bytes, name: str, what: str) -> T:
    try:
        return reader(data)
    except CompileError as error:
        raise SourceError(f"{name} looks like {what} but is truncated or damaged: {error}") from error


def check_layout(kernel: BinaryKernel, layout: Sequence[LayoutSlot]) -> None:
    """Checks that the kernel takes parameters of exactly these sizes; see :func:`check_parameters`."""
    check_parameters(kernel.entry, kernel.parameters, layout)


def check_parameters(entry: str, parameters: Sequence[tuple[int, int]], layout: Sequence[LayoutSlot]) -> None:
    """Checks that a kernel that takes ``parameters``, offset and size in bytes of each, fits the layout.

    Raises:
        SourceError: it does not; shows each parameter as declared and as the binary has it. A launch would read wrong
            memory.
    """
    declared = [slot.bytes for slot in layout]
    if declared == [size for _, size in parameters]:
        return
    lines: list[str] = []
    for index in range(max(len(layout), len(parameters))):
        said = "nothing"
        if index < len(layout):
            said = f"{layout[index].name or layout[index].type.value}, {declared[index]} bytes"
        has = "nothing"
        if index < len(parameters):
            offset, size = parameters[index]
            has = f"{size} bytes at {offset}"
        mark = " " if said != "nothing" and has != "nothing" and declared[index] == parameters[index][1] else "!"
        lines.append(f"\n  {mark} {index}: declared {said}; the binary has {has}")
    more = len(lines) - _MOST_SHOWN
    lines[_MOST_SHOWN:] = [f"\n    and {more} more"] if more > 0 else []
    hint = ""
    if len(parameters) - len(layout) in (1, 2):
        hint = "\nSome compilers add one or two pointers at the end, for scratch memory: declare them as null"
    elif any(size not in (1, 2, 4, 8) for _, size in parameters):
        hint = "\nStructs by value are not passed: let the kernel take their members, or a pointer to them"
    raise SourceError(
        f"{entry} takes other parameters than the signature says ({len(parameters)} in the binary, "
        f"{len(layout)} declared):{''.join(lines)}{hint}"
    )
