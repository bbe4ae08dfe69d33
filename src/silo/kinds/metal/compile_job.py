"""From a job to a shared object, by clang."""

from __future__ import annotations

import logging
import re

from silo.compile.c_compiler import CCompiler
from silo.compile.identity import code_digest
from silo.compile.native_build import BuiltObject, build
from silo.core.compiled import Compiled, CompiledBlob
from silo.core.launch_info import LaunchInfo
from silo.core.target import Target
from silo.core.values import canonical_json, digest
from silo.core.variant import CompileJob
from silo.errors import CompileError, ToolchainError
from silo.frozen import replace
from silo.kinds.metal.clang import code_flags, link_flags, stack_flags
from silo.kinds.metal.entry_text import STACK, entry_text, scratch_bytes
from silo.kinds.metal.metal_job import EmulatorJob
from silo.kinds.metal.precompiled import precompiled_header
from silo.kinds.metal.torch_headers import digest_of_headers, headers_folder

__all__ = ["compile_job", "emulator_identity", "include_flags", "stack_needed"]

_log = logging.getLogger("silo")
_WAITING = "silo_metal_"  # what code needs whose threads wait for each other
_REMARK = " stack bytes in function"
_CALLS = 8192  # bytes that functions of the C library take
_SCRATCH_ALIGN = 64  # bytes, of the CPU kernel ABI


def emulator_identity(target: Target, clang: CCompiler, code: tuple[str, ...]) -> str:
    """What decides the bytes of an object besides its job. Flags that name folders are not among it."""
    flags = [flag for flag in (*code_flags(target), *link_flags()) if not flag.startswith("/")]
    return f"metal emulator code {code_digest(*code)} flags {digest('metal-flags/1', flags)[:16]} {clang.version}"


def compile_job(job: CompileJob, clang: CCompiler, identity: str) -> Compiled:
    """Compile and link one job.

    Raises:
        CompileError: the job makes no sense, or clang refuses the kernel's text; with its file and lines.
    """
    emulated = EmulatorJob.from_job(job)
    entry = f"silo_{re.sub('[^A-Za-z0-9_]', '_', job.kernel)}_{job.key(identity)[:12]}"
    flags = (*code_flags(job.target), *include_flags(job.kernel, emulated))
    try:
        built = _built(emulated, entry, job.target, flags, clang)
    except CompileError as error:
        if emulated.waits or "undefined reference to `" + _WAITING not in str(error):
            raise
        # A function of a header waits, whose name did not tell.
        emulated = replace(emulated, waits=True)
        built = _built(emulated, entry, job.target, flags, clang)
    stack = stack_needed(built.log) if emulated.waits else STACK
    if stack > STACK:
        built = _built(emulated, entry, job.target, flags, clang, stack)
    scratch = scratch_bytes(emulated, stack)
    launch = LaunchInfo(
        entry=entry,
        layout=emulated.layout,
        scratch_bytes=scratch,
        scratch_align=_SCRATCH_ALIGN if scratch else 1,
        options=(("cpu_chunk", emulated.chunk), ("cpu_threads", emulated.threads)),
    )
    sidecar = CompiledBlob("metaljob", canonical_json(emulated.to_job(job.kernel, job.target).to_json()))
    return Compiled(launch, CompiledBlob("so", built.data), (sidecar,))


def stack_needed(log: str) -> int:
    """Bytes of a thread's stack, from what clang says that each function takes of one. None calls itself.

    >>> stack_needed("<stdin>:2:1: remark: 36008 stack bytes in function 'f'") - 36008 >= 8192
    True
    """
    found = sum(int(line.split(_REMARK)[0].split()[-1]) for line in log.splitlines() if _REMARK in line)
    return STACK if found + _CALLS <= STACK else -(-(found + _CALLS) // 4096) * 4096


def include_flags(kernel: str, job: EmulatorJob) -> tuple[str, ...]:
    """Where headers of torch are, for a text that includes some. ToolchainError: they are others than at first."""
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
    header = precompiled_header(clang, code_flags(target))
    if header is None:
        return build(text, (*flags, *link_flags()), clang, "c++")
    # Its name says what it was made of and with: clang need not look.
    use = ("-include-pch", str(header), "-Xclang", "-fno-validate-pch")
    return build(text, (*flags, *use, *link_flags()), clang, "c++")
