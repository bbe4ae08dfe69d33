"""A bounded reader of PTX directives: the target, and the parameters and threads of each kernel.

PTX ISA, "Kernel and Function Directives" and "Performance-Tuning Directives".
"""

from __future__ import annotations

import math
import re

from silo.artifacts.binary_inspection import BinaryKernel
from silo.errors import CompileError

__all__ = ["inspect_ptx"]

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
    """The kernels (``.entry``) of PTX text, sorted by name. ``arch`` is "" without a ``.target`` that names one.

    Registers, spills and shared memory are unknown until the driver compiles it, and are 0 here.

    Raises:
        CompileError: not PTX, cut off, or a kernel whose parameters are declared in a way that is not read here.
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
        # A list of parameters contains no parentheses.
        end = text.find(")", at)
        if end < 0:
            raise CompileError(f"the PTX ends within the parameters of {name}")
        parameters = _parameters(name, text[at + 1 : end])
        at = end + 1
    body = text.find("{", at)
    if body < 0 or not _closes(text, body):
        raise CompileError(f"the PTX ends before the body of {name} does")
    sizes = {directive: (int(x), int(y or 1), int(z or 1)) for directive, x, y, z in _SIZES.findall(text[at:body])}
    most = sizes.get("maxntid")
    return BinaryKernel(
        entry=name,
        arch=arch,
        registers=0,
        spills=0,
        local_bytes=0,
        shared_bytes=0,
        parameters=parameters,
        required_block=sizes.get("reqntid"),
        most_threads=None if most is None else math.prod(most),
        cluster=sizes.get("reqnctapercluster"),
    )


def _closes(text: str, start: int) -> bool:
    """Whether the brace at ``start`` has its counterpart."""
    depth = 0
    for match in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if not depth:
            return True
    return False


def _parameters(entry: str, text: str) -> tuple[tuple[int, int], ...]:
    """Offset and size of each parameter; they follow each other, each at its alignment."""
    found: list[tuple[int, int]] = []
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
        found.append((offset, size))
        end = offset + size
    return tuple(found)
