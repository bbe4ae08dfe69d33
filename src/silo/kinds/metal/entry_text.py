"""The C++ text of a job: Metal's library, the kernel's text, and the entry that Silo's CPU driver calls."""

from __future__ import annotations

from silo.kinds.metal.metal_job import BufferRole, CallArgument, EmulatorJob

__all__ = ["STACK", "entry_text", "quoted", "scratch_bytes"]

# Bytes: emulator/fibers.h has the same. What lies between two stacks, the state of a group, its threadgroup memory.
_GAP = 5 * 64
_RUNNER = 1 << 18
_GROUP = 32768

STACK = 16384
"""Bytes of a thread's stack, as a rule."""


def scratch_bytes(job: EmulatorJob, stack: int = STACK) -> int:
    """What each thread of a launch is lent."""
    x, y, z = job.group
    return _RUNNER + _GROUP + x * y * z * (stack + _GAP) if job.waits else 0


def quoted(text: str) -> str:
    r"""A text as a literal of C++.

    >>> print(quoted('a"b'))
    "a\"b"
    """
    escaped = "".join(f"\\{c}" if c in '"\\' else c if c.isprintable() else "_" for c in text)
    return f'"{escaped}"'


def _held(argument: CallArgument) -> str:
    """What an entry takes from its parameters once a launch; "" where that is nothing."""
    slot = f"parameters[{argument.number}]"
    match argument.role:
        case BufferRole.POINTER | BufferRole.REFERENCE:
            return f"  void *const {_own(argument)} = *static_cast<void *const *>({slot});\n"
        case BufferRole.VALUE:
            return f"  const {argument.text} {_own(argument)} = *static_cast<const {argument.text} *>({slot});\n"
        case BufferRole.THREADGROUP | BufferRole.POSITION:
            return ""


def _own(argument: CallArgument) -> str:
    return f"silo_{argument.number}"


def _passed(argument: CallArgument, file: str) -> str:
    match argument.role:
        case BufferRole.POINTER:
            return f"silo_metal::Pointer{{{_own(argument)}}}"
        case BufferRole.REFERENCE:
            return f"silo_metal::Reference{{{_own(argument)}}}"
        case BufferRole.VALUE:
            return _own(argument)
        case BufferRole.THREADGROUP:
            array = f"silo_metal::threadgroup_array<unsigned char[{argument.number}]>"
            return f"silo_metal::Pointer{{&{array}({quoted(argument.name)}, [] {{}}, {{{quoted(file)}, 0}})}}"
        case BufferRole.POSITION:
            return f"at.{argument.text}()"


def entry_text(job: EmulatorJob, entry: str, stack: int = 0) -> str:
    """The whole text; lines of the kernel's own are under ``#line``. ``stack`` is a thread's, 0 for the usual."""
    x, y, z = job.group
    held = "".join(_held(one) for one in job.arguments)
    passed = ", ".join(_passed(one, job.file) for one in job.arguments)
    run = "run_fibers" if job.waits else "run_plain"
    threads = "nullptr"
    cut = ""
    if job.cut:
        first = len(job.layout) - 3
        values = ", ".join(f"*static_cast<const uint *>(parameters[{first + axis}])" for axis in range(3))
        cut = f"  const uint cut[3] = {{{values}}};\n"
        threads = "cut"
    own_stack = f", {stack}" if stack and job.waits else ""
    switch = "SILO_METAL_SWITCH\n" if job.waits else ""
    return (
        f"#include <metal_stdlib>\n"
        f"{switch}"
        # Of what the text defines only what this kernel calls is compiled.
        f"#pragma clang attribute push(__attribute__((internal_linkage)), apply_to = function)\n"
        f"#line 1 {quoted(job.file)}\n"
        f"{job.source}\n"
        f'#line 1 "entry"\n'
        f"#pragma clang attribute pop\n"
        f'extern "C" [[gnu::flatten, gnu::visibility("default")]] int {entry}(\n'
        f"    void *const *parameters, const uint *grid, unsigned long begin, unsigned long end, void *scratch,\n"
        f"    void *context) {{\n"
        f"{held}{cut}"
        f"  const auto thread_body = [=](const auto &at) {{\n"
        f"    SILO_METAL_INLINED ::{job.function}({passed});\n"
        f"  }};\n"
        f"  return silo_metal::{run}<{x}, {y}, {z}, {'true' if job.cut else 'false'}>(\n"
        f"      thread_body, grid, {threads}, begin, end, scratch, context{own_stack});\n"
        f"}}\n"
    )
