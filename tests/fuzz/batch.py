"""Many kernels compiled as one object: starting the C compiler and linking take longer than a small kernel does."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from silo.compile.c_compiler import find_compiler
from silo.core.consent import HostCode
from silo.core.launch_info import LaunchInfo
from silo.drivers.cpu.levels import host_target, level_of
from silo.errors import CompileError
from silo.kinds.triton.cpu import runtime
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.emit.kernel_text import PRELUDE, emit_c
from silo.kinds.triton.cpu.object_build import build, compile_flags
from silo.kinds.triton.front.ssa import Module
from silo.launch.cpu_objects import KernelObject, open_object
from silo.settings import settings
from silo.store.trust_ledger import consent_to_compiled

from .lowered import Lowered

__all__ = ["Part", "compile_parts", "part_of", "text_of", "whole_text"]

# Unused values and comparisons that are always true are what the kernel says.
_EXCEPTED = ("unused", "type-limits", "tautological-compare", "aggressive-loop-optimizations", "unknown-warning-option")
_WARNINGS = ("-Wall", "-Wextra", *(f"-Wno-{name}" for name in _EXCEPTED))
# What a kernel's text defines outside functions: constant arrays, enumerators, functions.
_DEFINED = re.compile(
    r"^(?:enum \{ (\w+) ="
    r"|static [^(;]*?\b(\w+)\[\] ="
    r"|(?:SILO_INLINE|static|int32_t|void)\b(?:\s*__attribute__\(\(.*?\)\))?"
    r"[^(;=]*?\b(\w+)\()",
    re.MULTILINE,
)
# Functions of the runtime that a kernel asks for by a macro: one for all kernels of a text.
_SHARED = re.compile(r"^SILO_DOT_KERNEL_\w+\(.*\)$", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """The C text of one kernel without the runtime, its names its own, and what it needs."""

    text: str
    uses: frozenset[str]
    launch: LaunchInfo


def part_of(lowered: Lowered, mode: str, place: int, *, contract: bool, apart: bool = False) -> Part:
    """The text of one kernel of a batch, ``place``\\ th in it; three of four that keep ``apart`` may count on it."""
    bits = level_of(host_target()).vector_bits
    alone = mode == "optimized" and place % 2 == 0  # one thread runs it: every other kernel may count on that
    options = CpuOptions(
        mode=mode,
        vector_bits=bits,
        fp_contract=contract,
        launch_atomics=alone,
        elements_apart=apart and mode == "optimized" and place % 4 != 3,
    )
    emitted = emit_c(lowered.module, options)
    head = "\n".join((runtime.text(emitted.uses, bits), PRELUDE))
    assert emitted.source.startswith(head), "the text of a kernel no longer starts with the runtime and the prelude"
    body = emitted.source[len(head) :]
    names = {name for match in _DEFINED.findall(body) for name in match if name}
    assert emitted.entry in names
    body = re.sub(r"[A-Za-z_]\w*", lambda m: f"{m.group()}_{place}" if m.group() in names else m.group(), body)
    launch = LaunchInfo(
        entry=f"{emitted.entry}_{place}",
        layout=lowered.layout,
        threads=1,
        scratch_bytes=emitted.scratch_bytes,
        scratch_align=64 if emitted.scratch_bytes else 1,
    )
    return Part(body, emitted.uses, launch)


def compile_parts(
    parts: Sequence[Part], *, contract: bool, optimize: bool, compiler: str | None = None
) -> list[KernelObject | str]:
    """Compile and load; for each part its kernel, or what the C compiler (SILO_CC, or as named) said against it.

    Reference code is compiled with -O0: nothing is vectorized in it, it is the oracle, and this takes a quarter of -O1.
    """
    compiler = compiler or settings().cc
    try:
        return [*_compiled(parts, compiler, contract=contract, optimize=optimize)]
    except CompileError:
        if len(parts) == 1:
            raise
    found: list[KernelObject | str] = []
    for part in parts:
        try:
            found.extend(_compiled([part], compiler, contract=contract, optimize=optimize))
        except CompileError as error:
            found.append(str(error))
    return found


def whole_text(parts: Sequence[Part]) -> str:
    """One C text with all of ``parts``."""
    uses = frozenset().union(*(part.uses for part in parts))
    shared = dict.fromkeys(line for part in parts for line in _SHARED.findall(part.text))
    texts = (_SHARED.sub("", part.text) for part in parts)
    return "\n".join((runtime.text(uses, level_of(host_target()).vector_bits), PRELUDE, *shared, *texts))


def _compiled(parts: Sequence[Part], compiler: str | None, *, contract: bool, optimize: bool) -> list[KernelObject]:
    level = level_of(host_target())
    source = whole_text(parts)
    flags = compile_flags(level, contract=contract, libm=True)
    if not optimize:
        flags = tuple("-O0" if flag == "-O2" else flag for flag in flags)
    built = build(source, (*_WARNINGS, *flags), find_compiler(compiler))
    if built.log.strip():
        raise CompileError(f"the C compiler warns:\n{built.log}")
    # One object holds them all, so the consent to the first is to what is loaded.
    launch = parts[0].launch
    code = HostCode(hashlib.sha256(built.data).hexdigest(), "so", launch)
    library = open_object(launch, built.data, consent_to_compiled(code, "this process compiled it"))
    return [KernelObject(part.launch, library) for part in parts]


def text_of(module: Module, mode: str) -> str:
    """The whole C text of one kernel, for people."""
    bits = level_of(host_target()).vector_bits
    return emit_c(module, CpuOptions(mode=mode, vector_bits=bits)).source
