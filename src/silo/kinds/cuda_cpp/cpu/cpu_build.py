"""Compiles a kernel in CUDA C++ to a shared object for the CPU, with clang."""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from silo.compile.c_compiler import CCompiler
from silo.compile.identity import code_digest
from silo.compile.native_build import BuiltObject, build
from silo.core.device import Target
from silo.core.launch_info import AbiType, LaunchInfo, format_block
from silo.core.values import canonical_json, digest
from silo.core.variant import Compiled, CompiledBlob, CompileJob
from silo.emulation.clang import (
    STACK,
    common_flags,
    include_flag,
    link_flags,
    precompiled_header,
    scratch_bytes,
    stack_flags,
    stack_needed,
)
from silo.errors import CompileError
from silo.kinds.cuda_cpp.cpu.cpu_text import entry_text, may_wait, rewritten
from silo.kinds.cuda_cpp.cpu.runtime import FOLDER
from silo.kinds.cuda_cpp.cuda_unit import CudaText, CudaUnit
from silo.kinds.cuda_cpp.user_headers import cause_of

__all__ = [
    "HEADER",
    "code_flags",
    "compile_unit",
    "cpu_identity",
    "first_cause",
    "group_memory",
    "header_folder",
    "refused",
    "runnable",
]

HEADER = FOLDER / "silo_cuda.h"
"""The header with CUDA's language for the CPU."""

_CODE_FLAGS = ("-std=gnu++20", "-Wno-reserved-user-defined-literal")
_WAITING_FLAGS = ("-femulated-tls", "-DSILO_CUDA_WAITS", "-DSILO_THREADS_SLOT")
_STATIC = 49152  # the most bytes of static shared memory of a block, besides dynamic shared memory
_MOST_DYNAMIC = 232448 - _STATIC
_MOST_THREADS = 1024
_PRINTS = 65536  # bytes of stack that printf needs
_SCRATCH_ALIGN = 64  # the alignment of scratch memory in bytes, as the CPU kernel ABI requires
_PLAIN_BYTES = 48  # sizeof(silo_cuda::Here): thread-local bytes of an object without __shared__ variables
_SEGMENT = struct.Struct("<IIQQQQQQ")
_TLS = 7
_NO_SUCH = re.compile(r"undefined (?:reference|symbol|hidden symbol)")
_ASSEMBLY = re.compile("attempt to use a poisoned identifier")
_REFUSALS = re.compile(
    r"'[^'\n]*' is unavailable: (?P<what>[^\n]*does not run on the CPU)"
    r"|error: \"(?P<header>[^\"\n]*does not run on the CPU)\""
)
_PLACE = re.compile(r"^(?P<file>[^\n:]+):(?P<line>\d+):\d+: (?:fatal )?error: ", re.MULTILINE)
_INCLUDED = re.compile(r"^In file included from (?P<file>[^\n:]+):(?P<line>\d+):", re.MULTILINE)
_FROM = re.compile(r"^ {17}from (?P<file>[^\n:]+):(?P<line>\d+):", re.MULTILINE)


def code_flags(target: Target, *, waits: bool) -> tuple[str, ...]:
    """Returns the flags that affect code and precompiled headers. Raises TargetError for an unknown level.

    ``waits`` is True for code in which the threads of a block may wait for each other.
    """
    return (*common_flags(target), *_CODE_FLAGS, *(_WAITING_FLAGS if waits else ()), *include_flag(FOLDER))


def cpu_identity(target: Target, clang: CCompiler, code: tuple[str, ...]) -> str:
    """Returns everything that decides an object's bytes besides its job; paths of folders are left out."""
    flags = [flag for flag in (*code_flags(target, waits=True), *link_flags()) if not flag.startswith("/")]
    return f"cuda cpu code {code_digest(*code)} flags {digest('cuda-cpu-flags/1', flags)[:16]} {clang.version}"


def runnable(kernel: str, unit: CudaUnit) -> None:
    """Raises CompileError for a launch that the CPU does not support."""
    x, y, z = unit.block
    if unit.block == (0, 0, 0):
        raise CompileError(f"{kernel}: how many threads has a block? Give threads=, for example threads=256")
    if x * y * z > _MOST_THREADS:
        raise CompileError(f"{kernel}: a block of {format_block(unit.block)} threads; a block has at most 1024")
    if unit.cluster not in ((0, 0, 0), (1, 1, 1)):
        raise CompileError(f"{kernel}: clusters of blocks do not run on the CPU; cluster is {unit.cluster}")
    if unit.shared_bytes > _MOST_DYNAMIC:
        raise CompileError(
            f"{kernel}: {unit.shared_bytes} bytes of dynamic shared memory; a block has at most {_MOST_DYNAMIC}"
        )
    for slot in unit.layout:
        if slot.type is AbiType.TENSORMAP:
            raise CompileError(f"{kernel}: {slot.name} is a tensor map, which does not run on the CPU")


def group_memory(unit: CudaUnit) -> int:
    """Returns the bytes that the threads of a block share."""
    return _STATIC + -(-unit.shared_bytes // 128) * 128


def compile_unit(
    job: CompileJob, unit: CudaUnit, clang: CCompiler, identity: str, options: Sequence[tuple[str, int]]
) -> Compiled:
    """Compiles and links one variant.

    Raises:
        CompileError: clang refuses the text, or the text uses a part of CUDA that the CPU lacks; the message has the
            line.
    """
    runnable(job.kernel, unit)
    entry = f"silo_{re.sub('[^A-Za-z0-9_]', '_', job.kernel)}_{job.key(identity)[:12]}"
    try:
        built = None if may_wait(unit) else _built_plain(unit, entry, job.target, clang)
        stack, waits = STACK, built is None
        if built is None:
            built = _built(unit, entry, job.target, clang, waits=True, stack=stack)
            stack = max(stack_needed(built.log), _PRINTS if re.search(r"\bprintf\b", unit.text.text) else 0)
            if stack > STACK:
                built = _built(unit, entry, job.target, clang, waits=True, stack=stack)
    except CompileError as error:
        raise refused(job.kernel, unit, error) from None
    x, y, z = unit.block
    scratch = scratch_bytes(x * y * z, group_memory(unit), stack) if waits else 0
    launch = LaunchInfo(
        entry=entry,
        layout=unit.layout,
        scratch_bytes=scratch,
        scratch_align=_SCRATCH_ALIGN if scratch else 1,
        cooperative=unit.cooperative,
        options=tuple(options),
    )
    sidecar = CompiledBlob("cudajob", canonical_json(job.to_json()))
    return Compiled(launch, CompiledBlob("so", built.data), (sidecar,))


def _built_plain(unit: CudaUnit, entry: str, target: Target, clang: CCompiler) -> BuiltObject | None:
    """Returns code whose threads run in a plain loop; None if threads wait for each other or share memory.

    Raises CompileError if clang refuses the text.
    """
    try:
        built = _built(unit, entry, target, clang, waits=False, stack=STACK)
    except CompileError as error:
        if _NO_SUCH.search(str(error)) is None:
            raise
        return None
    return built if _thread_bytes(built.data) <= _PLAIN_BYTES else None


def _thread_bytes(data: bytes) -> int:
    """Returns the bytes of thread-local variables in a shared object (ELF, 64 bits)."""
    start, size, count = *struct.unpack_from("<Q", data, 0x20), *struct.unpack_from("<HH", data, 0x36)
    headers = (_SEGMENT.unpack_from(data, start + index * size) for index in range(count))
    return sum(header[6] for header in headers if header[0] == _TLS)


@contextmanager
def header_folder(text: CudaText) -> Generator[tuple[str, ...]]:
    """Writes the user's headers to a private folder, and yields the flags that make clang find them."""
    from silo.temporary import own_folder  # noqa: PLC0415  # a text without headers needs none

    if not text.headers:
        yield ()
        return
    with own_folder("silo-cc-") as folder:
        root = Path(folder)
        for name, content in text.headers:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise CompileError(f"the header {name!r} lies outside of its folder")
            header_path = root / path
            header_path.parent.mkdir(parents=True, exist_ok=True)
            header_path.write_text(rewritten(content))
        # In messages and line tables, the headers have the names that the user wrote, without the temporary folder.
        yield ("-I", str(root), f"-ffile-prefix-map={root}/=")


def _built(unit: CudaUnit, entry: str, target: Target, clang: CCompiler, *, waits: bool, stack: int) -> BuiltObject:
    text = entry_text(unit, entry, waits=waits, stack=stack, memory=group_memory(unit))
    base = code_flags(target, waits=waits)
    header = precompiled_header(clang, base, HEADER)
    # The header's file name contains the digest of its inputs, so clang need not validate it.
    use = () if header is None else ("-include-pch", str(header), "-Xclang", "-fno-validate-pch")
    with header_folder(unit.text) as folders:
        flags = (*base, *(stack_flags() if waits else ()), *folders, *use, *link_flags())
        try:
            return build(text, flags, clang, "c++")
        except CompileError as error:
            if not folders:
                raise
            raise type(error)(str(error).replace(f"{folders[1]}/", "")) from None


def refused(kernel: str, unit: CudaUnit, error: CompileError) -> CompileError:
    """Returns the error for users from clang's error: it begins with the cause, such as an unsupported part of CUDA."""
    return CompileError(cause_of(first_cause(str(error)), kernel, unit))


def first_cause(log: str) -> str:
    """Returns clang's messages; an unsupported part of CUDA comes first, with the line of the user's text."""
    match = _REFUSALS.search(log)
    if match is not None:
        cause, at = match["what"] or match["header"], match.start()
    elif (assembly := _ASSEMBLY.search(log)) is not None:
        cause, at = "inline PTX does not run on the CPU", assembly.start()
    else:
        return log
    return f"{_place_of(log, at)}error: {cause}\n{log}"


def _place_of(log: str, at: int) -> str:
    """Returns ``file:line:1: `` in the user's text for the message around the index ``at``."""
    start = log.rfind("\n", 0, at) + 1
    own = _PLACE.match(log, start)
    if own is not None and not own["file"].startswith("/"):
        return f"{own['file']}:{own['line']}:1: "
    before = log[:start]
    places = [*_INCLUDED.finditer(before), *_FROM.finditer(before)]
    users = [match for match in places if not match["file"].startswith(("/", "<"))]
    return f"{users[-1]['file']}:{users[-1]['line']}:1: " if users else ""
