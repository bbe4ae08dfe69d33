"""Reads the types of kernel parameters with clang if NVRTC is missing: mangled names of templates contain the types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from silo.compile.compiler_process import run_compiler
from silo.core.device import Target
from silo.emulation.clang import find_clang
from silo.errors import CompileError
from silo.kinds.cuda_cpp.cpu.cpu_build import code_flags, first_cause, header_folder
from silo.kinds.cuda_cpp.cpu.cpu_text import POISON, head_text, quoted, rewritten
from silo.kinds.cuda_cpp.cuda_unit import CudaText
from silo.kinds.cuda_cpp.signature_probe import PROBE
from silo.settings import child_environment
from silo.temporary import own_folder

__all__ = ["lowered_names"]

_TABLE = "silo_names"
_LEVEL = Target("cpu", "x86-64-v2")  # types are the same for every level
_ROWS = re.compile(r"^\s*\.(?:quad|xword|8byte)\s+([\w.$]+)", re.MULTILINE)


def lowered_names(
    text: CudaText, defines: Sequence[tuple[str, str]], flags: Sequence[str], expressions: Sequence[str]
) -> tuple[str, ...]:
    """Returns the mangled name of each expression, as :class:`silo.kinds.cuda_cpp.signature_probe.Prober` describes.

    ``flags`` are NVRTC's options. They are ignored: the types depend only on the macros, which ``defines`` has, and on
    the C++ standard, for which clang always gets the same flag.

    Raises:
        CompileError: clang refuses the text; the message has the file and the lines.
        CompilerMissingError: no suitable clang.
    """
    del flags
    clang = find_clang()
    listed = ",\n".join(f"    (const void *)&{expression}" for expression in expressions)
    full_text = (
        f"{head_text(text, defines, waits=True, cooperative=True)}"
        f"{POISON}#line 1 {quoted(text.file)}\n"
        f"{rewritten(text.text)}\n"
        f'#line 1 "entry"\n'
        f"{PROBE}"
        f'extern "C" {{ extern const void *const {_TABLE}[] __attribute__((used)); '
        f"const void *const {_TABLE}[] = {{\n{listed}\n}}; }}\n"
    )
    with own_folder("silo-cc-") as folder, header_folder(text) as folders:
        source, assembly_path = Path(folder, "probe.cc"), Path(folder, "probe.s")
        source.write_text(full_text)
        command = [*clang.command, *code_flags(_LEVEL, waits=True), "-O0", *folders, "-S", "-x", "c++", str(source)]
        done = run_compiler([*command, "-o", str(assembly_path)], env=child_environment(LC_ALL="C", TMPDIR=folder))
        if done.returncode != 0:
            log = done.stderr.decode(errors="replace")
            for prefix in (f"{folder}/", f"{folders[1]}/" if folders else ""):
                log = log.replace(prefix, "") if prefix else log
            raise CompileError(first_cause(log))
        assembly = assembly_path.read_text()
    rows = _ROWS.findall(assembly.partition(f"\n{_TABLE}:")[2].partition(".size")[0])
    if len(rows) != len(expressions):
        raise CompileError(f"clang named {len(rows)} of {len(expressions)} types of {text.file}")
    return tuple(rows)
