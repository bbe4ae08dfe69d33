"""Compiles a job to a shared object with clang, after adding the entry function that the CPU driver calls."""

from __future__ import annotations

import logging
import re

from silo.compile.c_compiler import CCompiler
from silo.compile.identity import code_digest
from silo.compile.native_build import BuiltObject, build
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo
from silo.core.values import canonical_json, digest
from silo.core.variant import Compiled, CompiledBlob, CompileJob
from silo.emulation.clang import (
    STACK,
    link_flags,
    precompiled_header,
    scratch_bytes,
    stack_flags,
    stack_needed,
)
from silo.errors import CompileError, ToolchainError
from silo.frozen import replace
from silo.kinds.metal.clang import HEADER, code_flags, digest_of_headers, headers_folder
from silo.kinds.metal.metal_job import BufferRole, EmulatorJob, MetalArgument

__all__ = ["GROUP_BYTES", "compile_job", "emulator_identity", "entry_text", "include_flags", "quoted"]

GROUP_BYTES = 32768
"""Bytes of threadgroup memory; equals SILO_THREADS_GROUP_BYTES in emulator/threads.h."""

# ---- The C++ text of a job: Metal's library, the kernel's text, and the entry function ----


def quoted(text: str) -> str:
    r"""Returns a text as a C++ string literal.

    >>> print(quoted('a"b'))
    "a\"b"
    """
    escaped = "".join(f"\\{c}" if c in '"\\' else c if c.isprintable() else "_" for c in text)
    return f'"{escaped}"'


def _held(argument: MetalArgument) -> str:
    """Returns C++ that reads an array or a number from the entry's parameters, once in a launch.

    "" for threadgroup memory and positions, which are not among the entry's parameters.
    """
    slot = f"parameters[{argument.number}]"
    match argument.role:
        case BufferRole.POINTER | BufferRole.REFERENCE:
            return f"  void *const {_silo_name(argument)} = *static_cast<void *const *>({slot});\n"
        case BufferRole.VALUE:
            return f"  const {argument.text} {_silo_name(argument)} = *static_cast<const {argument.text} *>({slot});\n"
        case BufferRole.THREADGROUP | BufferRole.POSITION:
            return ""


def _silo_name(argument: MetalArgument) -> str:
    return f"silo_{argument.number}"


def _passed(argument: MetalArgument, file: str) -> str:
    match argument.role:
        case BufferRole.POINTER:
            return f"silo_metal::Pointer{{{_silo_name(argument)}}}"
        case BufferRole.REFERENCE:
            return f"silo_metal::Reference{{{_silo_name(argument)}}}"
        case BufferRole.VALUE:
            return _silo_name(argument)
        case BufferRole.THREADGROUP:
            array = f"silo_metal::threadgroup_array<unsigned char[{argument.number}]>"
            return f"silo_metal::Pointer{{&{array}({quoted(argument.name)}, [] {{}}, {{{quoted(file)}, 0}})}}"
        case BufferRole.POSITION:
            return f"at.{argument.text}()"


# Metal allows a cast from half to bfloat, which clang refuses for its own bfloat type.
_CASTS = "#define static_cast ::silo_metal::cast\n"
_END_OF_CASTS = "#undef static_cast\n"
# Assembly is refused: it would be for another machine than the CPU, and the CPU's assembler can read files (.incbin).
_WORDS_OF_ASSEMBLY = ("asm", "__asm", "__asm__")
_ASSEMBLY = "".join(f"#define {one} SILO_assembly_does_not_run_on_the_CPU\n" for one in _WORDS_OF_ASSEMBLY)
_END_OF_ASSEMBLY = "".join(f"#undef {one}\n" for one in _WORDS_OF_ASSEMBLY)


def entry_text(job: EmulatorJob, entry: str, stack: int = 0) -> str:
    """Returns the whole text; ``#line`` directives mark the kernel's own lines.

    ``stack``: bytes of each thread's stack; 0 for the size that the headers define.
    """
    x, y, z = job.group
    reads = "".join(_held(argument) for argument in job.arguments)
    passed = ", ".join(_passed(argument, job.file) for argument in job.arguments)
    run = "run_fibers" if job.waits else "run_plain"
    threads = "nullptr"
    cut = ""
    if job.cut:
        first = len(job.layout) - 3
        values = ", ".join(f"*static_cast<const uint *>(parameters[{first + axis}])" for axis in range(3))
        cut = f"  const uint cut[3] = {{{values}}};\n"
        threads = "cut"
    own_stack = f", {stack}" if stack and job.waits else ""
    switch = "SILO_THREADS_SWITCH\n" if job.waits else ""
    casts = "bfloat" in job.source and "static_cast" in job.source
    assembly = "asm" in job.source or "##" in job.source  # `##` in a macro may make the word asm
    return (
        f"#include <metal_stdlib>\n"
        f"{switch}"
        # With internal linkage, only the functions that this kernel calls are compiled.
        f"#pragma clang attribute push(__attribute__((internal_linkage)), apply_to = function)\n"
        f"{_CASTS if casts else ''}{_ASSEMBLY if assembly else ''}"
        f"#line 1 {quoted(job.file)}\n"
        f"{job.source}\n"
        f"{_END_OF_CASTS if casts else ''}{_END_OF_ASSEMBLY if assembly else ''}"
        f'#line 1 "entry"\n'
        f"#pragma clang attribute pop\n"
        f'extern "C" [[gnu::flatten, gnu::visibility("default")]] int {entry}(\n'
        f"    void *const *parameters, const uint *grid, unsigned long begin, unsigned long end, void *scratch,\n"
        f"    void *context) {{\n"
        f"{reads}{cut}"
        f"  const auto thread_body = [=](const auto &at) {{\n"
        f"    SILO_THREADS_INLINED ::{job.function}({passed});\n"
        f"  }};\n"
        f"  return silo_metal::{run}<{x}, {y}, {z}, {'true' if job.cut else 'false'}>(\n"
        f"      thread_body, grid, {threads}, begin, end, scratch, context{own_stack});\n"
        f"}}\n"
    )


# ---- Compiling with clang ----

_log = logging.getLogger("silo")
_WAITING = "silo_threads_"  # prefix of functions that exist only in code whose threads may wait
_SCRATCH_ALIGN = 64  # bytes; the CPU kernel ABI requires it


def emulator_identity(target: Target, clang: CCompiler, code: tuple[str, ...]) -> str:
    """Returns everything that decides an object's bytes besides its job; paths of folders are left out."""
    flags = [flag for flag in (*code_flags(target), *link_flags()) if not flag.startswith("/")]
    return f"metal emulator code {code_digest(*code)} flags {digest('metal-flags/1', flags)[:16]} {clang.version}"


def compile_job(job: CompileJob, clang: CCompiler, identity: str) -> Compiled:
    """Compiles and links one job.

    Raises:
        CompileError: the job is invalid, or clang refuses the kernel's text; the message has the file and the lines.
    """
    emulated = EmulatorJob.from_job(job)
    entry = f"silo_{re.sub('[^A-Za-z0-9_]', '_', job.kernel)}_{job.key(identity)[:12]}"
    flags = (*code_flags(job.target), *include_flags(job.kernel, emulated))
    try:
        built = _built(emulated, entry, job.target, flags, clang)
    except CompileError as error:
        if emulated.waits or "undefined reference to `" + _WAITING not in str(error):
            raise
        # A function of an included header waits for threads. may_wait() did not notice this, because it only reads the
        # names in the kernel's own text.
        emulated = replace(emulated, waits=True)
        built = _built(emulated, entry, job.target, flags, clang)
    stack = stack_needed(built.log) if emulated.waits else STACK
    if stack > STACK:
        built = _built(emulated, entry, job.target, flags, clang, stack)
    x, y, z = emulated.group
    scratch = scratch_bytes(x * y * z, GROUP_BYTES, stack) if emulated.waits else 0
    launch = LaunchInfo(
        entry=entry,
        layout=emulated.layout,
        scratch_bytes=scratch,
        scratch_align=_SCRATCH_ALIGN if scratch else 1,
        options=(("cpu_chunk", emulated.chunk), ("cpu_threads", emulated.threads)),
    )
    sidecar = CompiledBlob("metaljob", canonical_json(emulated.to_job(job.kernel, job.target).to_json()))
    return Compiled(launch, CompiledBlob("so", built.data), (sidecar,))


def include_flags(kernel: str, job: EmulatorJob) -> tuple[str, ...]:
    """Returns flags with the folder of torch's headers, if the text includes them.

    Raises ToolchainError if the headers have changed since the job was made.
    """
    if not job.headers:
        return ()
    if job.headers != digest_of_headers():
        raise ToolchainError(
            f"{kernel} was lowered with other <c10/metal/...> headers than the torch of this worker has: an "
            "artifact is for one torch; compile with one"
        )
    return ("-isystem", str(headers_folder()))


def _built(
    job: EmulatorJob, entry: str, target: Target, flags: tuple[str, ...], clang: CCompiler, stack: int = 0
) -> BuiltObject:
    text = entry_text(job, entry, stack)
    flags = (*flags, *stack_flags()) if job.waits else flags
    header = precompiled_header(clang, code_flags(target), HEADER)
    if header is None:
        return build(text, (*flags, *link_flags()), clang, "c++")
    # The header's file name contains the digest of its inputs, so clang need not validate it.
    use = ("-include-pch", str(header), "-Xclang", "-fno-validate-pch")
    return build(text, (*flags, *use, *link_flags()), clang, "c++")
