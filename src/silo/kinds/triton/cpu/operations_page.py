"""The operations table of ``docs/cpu.md``, printed from the tables that the compiler itself uses.

``python -m silo.kinds.triton.cpu.operations_page`` prints the page with the table brought up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from silo.kinds.triton.front.operations.nvidia.libdevice import LIBDEVICE
from silo.kinds.triton.front.operations.nvidia.ptx_table import INLINE
from silo.kinds.triton.front.operations.operation_table import OPERATIONS

__all__ = ["operations_table", "updated"]

_BEGIN = "<!-- operations: printed by python -m silo.kinds.triton.cpu.operations_page -->\n"
_END = "<!-- end of operations -->\n"
_DIALECTS = {
    "arith": "arithmetic, comparisons, casts",
    "math": "mathematical functions",
    "tt": "Triton",
    "scf": "loops and branches",
    "cf": "jumps (early return)",
}


def operations_table() -> str:
    """The table: supported operations by dialect, then instructions of inline assembly and libdevice functions."""
    names = sorted(record for record in OPERATIONS.values() if record.on_cpu)
    lines = ["| dialect | operations |", "| --- | --- |"]
    for dialect in dict.fromkeys([*_DIALECTS, *(name.partition(".")[0] for name in names)]):
        mine = [name.partition(".")[2] for name in names if name.partition(".")[0] == dialect]
        if mine:
            title = f"`{dialect}`: {_DIALECTS[dialect]}" if dialect in _DIALECTS else f"`{dialect}`"
            lines.append(f"| {title} | {', '.join(mine)} |")
    lines.append(f"| PTX, with and without `.ftz` | {', '.join(_instructions())} |")
    lines.append(f"| libdevice, without `__nv_` | {', '.join(_libdevice_names())} |")
    return "\n".join(lines) + "\n"


def _instructions() -> list[str]:
    """The supported instructions of inline assembly, each with its types."""
    types: dict[str, list[str]] = {}
    for name in INLINE:
        stem, _, kind = name.rpartition(".")
        types.setdefault(stem, []).append(kind)
    return [f"{stem}.{kinds[0]}" if len(kinds) == 1 else f"{stem} ({' '.join(kinds)})" for stem, kinds in types.items()]


def _libdevice_names() -> list[str]:
    """The sorted names of libdevice functions; the f32 form, whose name ends in f, is beside the f64 form."""
    names = {name.removeprefix("__nv_") for name in LIBDEVICE}
    single = {name for name in names if name.endswith("f") and name[:-1] in names}
    return [f"{name}[f]" if f"{name}f" in single else name for name in sorted(names - single)]


def updated(page: str) -> str:
    """The page with the current table; raises ``ValueError`` if the page lacks the marks around the table."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {_BEGIN.strip()!r} and {_END.strip()!r}")
    return before + begin + operations_table() + end + after


if __name__ == "__main__":
    sys.stdout.write(updated(Path("docs/cpu.md").read_text(encoding="utf-8")))
