"""Reads files of device code (kind, target, entry points) and checks a kernel's parameters against a declared layout.

The reader of PTX follows the PTX ISA, "Kernel and Function Directives" and "Performance-Tuning Directives".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from silo.artifacts.binary_inspection import BinaryKernel, inspect_binary
from silo.artifacts.elf import Elf, read_elf
from silo.core.device import Target, drivers
from silo.core.launch_info import LayoutSlot, parameter_bytes
from silo.errors import CompileError, SourceError, TargetError

__all__ = ["DeviceCode", "check_layout", "check_parameters", "inspect_ptx", "read_device_code"]


# ---- A bounded reader of PTX directives ----


_COMMENT_OR_STRING = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_VERSION = re.compile(r"\.version\s+\d+\.\d+")
_TARGET = re.compile(r"\.target\s+([^\n]+)")
_ARCH = re.compile(r"sm_[1-9][0-9]{1,2}[af]?")
_ENTRY = re.compile(r"\.entry\s+([A-Za-z_$%][\w$]*)\s*")
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d{1,9})\s+)?\.(?P<type>[a-z]+\d+)(?:\s+\.ptr[^,]*?)?"
    r"\s+(?P<name>[A-Za-z_$%][\w$]*)\s*(?:\[\s*(?P<count>\d{1,9})\s*\])?"
)
_SIZES = re.compile(
    r"\.(reqntid|maxntid|reqnctapercluster)\s+(\d{1,9})\b(?:\s*,\s*(\d{1,9})\b)?(?:\s*,\s*(\d{1,9})\b)?"
)
_BRACE = re.compile(r'"[^"\n]*"|[{}]')
_ELEMENT = re.compile(r"[a-z]+(8|16|32|64)")


def inspect_ptx(data: bytes) -> tuple[BinaryKernel, ...]:
    """Returns the kernels (``.entry``) of PTX text, sorted by name.

    ``arch`` is "" if no ``.target`` directive names one.

    The driver decides on registers, spills and shared memory when it compiles the text; they are 0 here.

    Raises:
        CompileError: the text is not PTX, is cut off, or declares a kernel's parameters in an unsupported way.
    """
    try:
        text = data.rstrip(b"\0").decode("utf-8")
    except UnicodeDecodeError as error:
        raise CompileError(f"the PTX is no UTF-8 text: byte {error.start}") from None
    text = _COMMENT_OR_STRING.sub(lambda match: match.group() if match.group()[0] == '"' else " ", text)
    if not _VERSION.search(text):
        raise CompileError("the PTX has no .version directive")
    target = _TARGET.search(text)
    arch = None if target is None else _ARCH.search(target.group(1))
    kernels = [_kernel(text, match, "" if arch is None else arch.group()) for match in _ENTRY.finditer(text)]
    if not kernels:
        raise CompileError("the PTX has no .entry, so it holds no kernel")
    return tuple(sorted(kernels, key=lambda kernel: kernel.entry))


def _kernel(text: str, entry: re.Match[str], arch: str) -> BinaryKernel:
    name, at = entry.group(1), entry.end()
    parameters: tuple[tuple[int, int], ...] = ()
    if text.startswith("(", at):
        # The next ")" ends the list of parameters, because the list itself contains no parentheses.
        end = text.find(")", at)
        if end < 0:
            raise CompileError(f"the PTX ends within the parameters of {name}")
        parameters = _parameters(name, text[at + 1 : end])
        at = end + 1
    body = text.find("{", at)
    if body < 0 or not _closes(text, body):
        raise CompileError(f"the PTX ends before the body of {name} does")
    sizes = {directive: (int(x), int(y or 1), int(z or 1)) for directive, x, y, z in _SIZES.findall(text[at:body])}
    max_threads = sizes.get("maxntid")
    return BinaryKernel(
        entry=name,
        arch=arch,
        registers=0,
        spills=0,
        local_bytes=0,
        shared_bytes=0,
        parameters=parameters,
        required_block=sizes.get("reqntid"),
        most_threads=None if max_threads is None else math.prod(max_threads),
        cluster=sizes.get("reqnctapercluster"),
    )


def _closes(text: str, start: int) -> bool:
    """Returns whether the brace at ``start`` is closed somewhere in the text."""
    depth = 0
    for match in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if not depth:
            return True
    return False


def _parameters(entry: str, text: str) -> tuple[tuple[int, int], ...]:
    """Returns the offset and the size of each parameter. Each follows the previous one, at the next aligned offset."""
    parameters: list[tuple[int, int]] = []
    end = 0
    for declaration in text.split(",") if text.strip() else ():
        match = _PARAMETER.fullmatch(declaration.strip())
        element = None if match is None else _ELEMENT.fullmatch(match["type"])
        if match is None or element is None:
            raise CompileError(f"the PTX declares a parameter of {entry} as {declaration.strip()!r}, which is not read")
        width = int(element.group(1)) // 8
        size = width * int(match["count"] or 1)
        align = int(match["align"] or width)
        if not align:
            raise CompileError(f"the PTX aligns a parameter of {entry} to 0 bytes")
        offset = -(-end // align) * align
        parameters.append((offset, size))
        end = offset + size
    return tuple(parameters)


# ---- Files of device code ----


T = TypeVar("T")

_TAKEN = "taken are a cubin (NVIDIA), an hsaco (AMD code object) and PTX text"
_MACHINES = {190: "cubin", 224: "hsaco"}
_HOST_MACHINES = {3: "x86", 40: "ARM", 62: "x86-64", 183: "aarch64", 243: "RISC-V"}
_MOST_SHOWN = 300  # a message lists at most this many parameters
_RELOCATABLE = 1  # the value of e_type for relocatable files: ET_REL

# The first bytes of files that users pass by mistake, each with the description that error messages give of the file.
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
    """A file of device code: its kind (``cubin``, ``hsaco``, ``ptx``), the target it was built for, and its kernels.

    ``target`` is None for PTX that names no arch. A cubin does not distinguish ``sm_100`` from ``sm_100a``; its target
    here has no suffix.
    """

    kind: str
    target: Target | None
    kernels: tuple[BinaryKernel, ...]

    def kernel(self, entry: str | None, name: str) -> BinaryKernel:
        """Returns the kernel called ``entry``; without ``entry``, the only kernel of the file.

        Raises SourceError, which lists the kernels, if there is no such kernel, or several without ``entry``.
        """
        for kernel in self.kernels:
            if kernel.entry == entry or (entry is None and len(self.kernels) == 1):
                return kernel
        listing = ", ".join(kernel.entry for kernel in self.kernels)
        if entry is None:
            raise SourceError(f"{name} holds {len(self.kernels)} kernels; say which with entry=: {listing}")
        raise SourceError(f"{name} holds no kernel {entry!r}; it has {listing}")


def read_device_code(data: bytes, name: str) -> DeviceCode:
    """Reads a file of device code, whose kind is recognized from its bytes. Messages call the file ``name``.

    Raises:
        SourceError: the file is of another kind, truncated or damaged; the message states the kind that was found and
            lists the supported kinds.
    """
    if not data:
        raise SourceError(f"{name} is empty; {_TAKEN}")
    for magic, label in _OTHERS:
        if data.startswith(magic):
            raise SourceError(f"{name} is {label}; {_TAKEN}")
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
        machine = _HOST_MACHINES.get(elf.machine, f"machine {elf.machine}")
        raise SourceError(f"{name} is host code for {machine}, not device code; {_TAKEN}; {_inside(elf)}")
    if int.from_bytes(data[16:18], "little") == _RELOCATABLE:
        raise SourceError(
            f"{name} is a relocatable {kind} (made with -rdc=true or -dc), which must be linked before it is loaded; "
            "link it with nvlink, or compile without -rdc"
        )
    kernels = _read(lambda read: inspect_binary(read, kind), data, name, f"a {kind}")
    return DeviceCode(kind, _target(kind, kernels[0].arch, name), kernels)


def _target(blob: str, arch: str, name: str) -> Target:
    """Returns the target of a blob of kind ``blob``.

    Exactly one driver loads each kind of device code, so the blob's kind decides the target's kind.
    """
    (kind,) = (driver.kind for driver in drivers() if blob in driver.blobs)
    try:
        return Target.parse(f"{kind}:{arch}")
    except TargetError as error:
        raise SourceError(
            f"{name} says it was built for {arch!r}, which is not an arch of {kind}; is it damaged?"
        ) from error


def _inside(elf: Elf) -> str:
    """Returns advice for a user who passed a file of host code: whether device code can be extracted from it."""
    if elf.section(".nv_fatbin") is not None:
        return "it has CUDA code inside: take one cubin out of it with cuobjdump -xelf all"
    if elf.section(".hip_fatbin") is not None:
        return "it has AMD code inside: take it out with roc-obj-extract"
    return "shared objects for the CPU are not taken, kernels for it are compiled from source (silo.kernel)"


def _read(reader: Callable[[bytes], T], data: bytes, name: str, label: str) -> T:
    try:
        return reader(data)
    except CompileError as error:
        raise SourceError(f"{name} looks like {label} but is truncated or damaged: {error}") from error


def check_layout(kernel: BinaryKernel, layout: Sequence[LayoutSlot]) -> None:
    """Checks that the parameters of the kernel have exactly the sizes of the layout; see :func:`check_parameters`."""
    check_parameters(kernel.entry, kernel.parameters, layout)


def check_parameters(entry: str, parameters: Sequence[tuple[int, int]], layout: Sequence[LayoutSlot]) -> None:
    """Checks that the parameters of a kernel, given as pairs of offset and size in bytes, fit the layout.

    Raises:
        SourceError: the parameters do not fit, so a launch would read wrong memory. The message shows each parameter as
            it is declared and as the binary has it.
    """
    declared = parameter_bytes(layout)
    if declared == [size for _, size in parameters]:
        return
    names = _parameter_names(layout)
    lines: list[str] = []
    for index in range(max(len(declared), len(parameters))):
        described = "nothing"
        if index < len(declared):
            described = f"{names[index]}, {declared[index]} bytes"
        has = "nothing"
        if index < len(parameters):
            offset, size = parameters[index]
            has = f"{size} bytes at {offset}"
        mark = " " if described != "nothing" and has != "nothing" and declared[index] == parameters[index][1] else "!"
        lines.append(f"\n  {mark} {index}: declared {described}; the binary has {has}")
    more = len(lines) - _MOST_SHOWN
    lines[_MOST_SHOWN:] = [f"\n    and {more} more"] if more > 0 else []
    hint = ""
    if len(parameters) - len(declared) in (1, 2):
        hint = "\nSome compilers add one or two pointers at the end, for scratch memory: declare them as null"
    elif any(size not in (1, 2, 4, 8) for _, size in parameters):
        hint = "\nA struct by value is declared with its members: {'p': {'x': 'in *fp32', 'n': 'i32'}}"
    raise SourceError(
        f"{entry} takes other parameters than the signature says ({len(parameters)} in the binary, "
        f"{len(declared)} declared):{''.join(lines)}{hint}"
    )


def _parameter_names(layout: Sequence[LayoutSlot]) -> list[str]:
    """Returns the name of each parameter of the binary.

    The members of a struct that is passed by value are one parameter; its name is the names of all members.
    """
    names: list[str] = []
    last: tuple[int, int] | None = None
    for slot in layout:
        member = slot.member
        if member is not None and last is not None and last[1] == member[1] and member[0] > last[0]:
            names[-1] += f" {slot.name}"
        else:
            names.append(slot.name or slot.type.value)
        last = member
    return names
