"""Splits a kernel's C text into its own part and the parts that other kernels contain too, so that these compile once.

Multiplying tiles takes a C compiler as long as the rest of a kernel, and its code is the same for all configs of a
kernel and for many kernels. A C text that multiplies tiles has a line (:data:`REST`) after everything that may be
shared: functions marked ``SILO_APART`` and the block kernels of dots (functions that multiply one register block).
Compiled in one piece, these functions are static; otherwise they are hidden symbols of objects that are linked in. Each
block kernel is in an object of its own, because configs differ in their blocks and in no other shared function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["BLOCK", "REST", "Parts", "part"]

REST = "/* ---- from here on: of this kernel alone */"
BLOCK = "SILO_DOT_KERNEL_"  # the beginning of the line that defines a dot's block kernel
_STATIC = "#define SILO_APART static __attribute__((noinline, unused))\n"
_HIDDEN = '#define SILO_APART __attribute__((noinline, visibility("hidden")))\n'
_BODY = re.compile(r"^(SILO_APART [^{};]*?) ?\{\n.*?^\}$", re.MULTILINE | re.DOTALL)
_BLOCK_LINE = re.compile(rf"^{BLOCK}(\w+)\((\d+), (\d+)\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parts:
    """The C text of one kernel, and the texts that it shares with other kernels.

    ``shared`` holds the functions first, then one text for each block. It is empty if sharing would not save time.
    """

    own: str
    shared: tuple[str, ...] = ()


def part(text: str) -> Parts:
    """Splits a kernel's C text into its own part and the shared parts.

    >>> part("int f(void);").shared
    ()
    """
    head, line, rest = text.partition(f"\n{REST}\n")
    if not line or _STATIC not in head:
        return Parts(text)
    shared = head.replace(_STATIC, _HIDDEN)
    blocks = dict.fromkeys(match.group() for match in _BLOCK_LINE.finditer(shared))
    functions = _without_blocks(shared)
    declared = _BODY.sub(r"\1;", shared)
    renamed = _BLOCK_LINE.sub(r"SILO_APART silo_dot_kernel_\1 silo_dot_\1_\2x\3;", declared)
    context = _without_blocks(declared)
    return Parts(renamed + line + rest, (f"{functions}\n", *(f"{context}\n{block}\n" for block in blocks)))


def _without_blocks(text: str) -> str:
    """Returns the text without the lines that define block kernels.

    White space at the end is removed, so that the result does not depend on the number of these lines.
    """
    return _BLOCK_LINE.sub("", text).rstrip()
