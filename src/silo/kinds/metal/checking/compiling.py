"""Compilation of a job to code that checks itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from silo.checking.findings import CheckFinding, check_error
from silo.checking.kernel import NativeKernel
from silo.compile.c_compiler import CCompiler
from silo.compile.native_build import BuiltObject, build
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Effect
from silo.core.target import Target
from silo.core.variant import Compiled, CompiledBlob
from silo.frozen import frozen, replace
from silo.kinds.metal.checking.address_spaces import Mixed, mixed_spaces
from silo.kinds.metal.checking.lines import LineTable
from silo.kinds.metal.checking.metal_runs import CheckedVariable, MetalCheckedRuns, Ready
from silo.kinds.metal.clang import code_flags, link_flags, precompiled_header
from silo.kinds.metal.compile_job import entry_text, include_flags
from silo.kinds.metal.metal_job import EmulatorJob
from silo.kinds.metal.runtime import FOLDER
from silo.launch.cpu_objects import load

__all__ = ["CHECKED_FLAGS", "HOOKS", "compile_checked"]

# The folder of <checked_hooks.h>.
HOOKS = Path(__file__).parent / "runtime"

# Flags of checked code: clang's instrumentation, whose functions the hooks define, with a call for each access and
# without shadow memory; line tables for messages; frames that can be walked. As little as possible is inlined, and
# loops are not assumed to end.
CHECKED_FLAGS = (
    "-O1",
    "-DSILO_METAL_CHECKED",
    "-DSILO_METAL_STACK=131072",
    f"-I{HOOKS}",
    "-gdwarf-4",
    "-gline-tables-only",
    "-gz=none",
    "-ffunction-sections",
    "-fno-omit-frame-pointer",
    "-fno-optimize-sibling-calls",
    "-fno-inline",
    "-fno-finite-loops",
    "-fsanitize=kernel-address",
    "-fsanitize=array-bounds",
    "-fsanitize-recover=array-bounds",
    "-fsanitize-coverage=trace-pc",
    "-Xclang",
    "-fsanitize-address-use-after-scope",
    "-mllvm",
    "-asan-instrumentation-with-call-threshold=0",
    "-mllvm",
    "-asan-stack=1",
    "-mllvm",
    "-asan-globals=1",
    "-mllvm",
    "-asan-opt=0",
    "-mllvm",
    "-asan-use-stack-safety=0",
    "-mllvm",
    "-asan-max-inline-poisoning-size=0",
    "-mllvm",
    "-asan-mapping-offset=0",
    "-mllvm",
    "-asan-kernel-mem-intrinsic-prefix=1",
)

_ENTRY = "silo_checked"
_STACK = 131072 + 5 * 64  # bytes of a thread, as SILO_METAL_STACK of the flags
_RUNNER = 1 << 18
_GROUP = 32768
_UNSET = ("-Wuninitialized", "-Wsometimes-uninitialized", "-Wconditional-uninitialized")
# Flags of ordinary code that checked code sets differently.
_OTHERWISE = frozenset({"-O2", "-g0", "-w"})
_STRIPPED = "-Wl,-s"


def compile_checked(
    kernel: str, job: EmulatorJob, effects: tuple[Effect, ...], *, target: Target, clang: CCompiler
) -> NativeKernel:
    """Compiles for checking. Equal kernels are compiled once in a process.

    Args:
        kernel: its name.
        job: the kernel's compile job.
        effects: its effect through each parameter of the layout.
        target: the CPU level to compile for.
        clang: the compiler.

    Raises:
        CheckError: a pointer of one address space is used as another's.
        CompileError: clang refuses the text.
    """
    mixed = _mixed(job, target, clang)
    if mixed is not None:
        what, at = "a pointer of the wrong address space", f" at {mixed.place}"
        raise check_error(kernel, CheckFinding("address space", what, (mixed.what,), place=mixed.place, at=at))
    code = _compiled(kernel, job, effects, target, clang)
    return NativeKernel(kernel, code.launch, effects, code.runs)


@frozen
class _Code:
    """A loaded object: its runs and its launch info."""

    runs: MetalCheckedRuns
    launch: LaunchInfo


@lru_cache(maxsize=64)
def _mixed(job: EmulatorJob, target: Target, clang: CCompiler) -> Mixed | None:
    return mixed_spaces(job.source, job.file, target, clang)


@lru_cache(maxsize=64)
def _compiled(kernel: str, job: EmulatorJob, effects: tuple[Effect, ...], target: Target, clang: CCompiler) -> _Code:
    job = replace(job, waits=True)  # threads need stacks of their own, to run in any order
    x, y, z = job.group
    launch = LaunchInfo(
        entry=_ENTRY,
        layout=job.layout,
        threads=1,
        scratch_bytes=_RUNNER + _GROUP + x * y * z * _STACK,
        scratch_align=64,
    )
    flags = _flags(target)
    folders = include_flags(kernel, job)
    built = _built(job, (*flags, *_UNSET), folders, clang)
    ready = _loaded(built, launch, job.file)
    written = frozenset(slot.name for slot, effect in zip(job.layout, effects, strict=True) if effect.writes)
    doubt = next(_doubts(built.log, job.file), None)
    if doubt is None:
        return _Code(MetalCheckedRuns(ready, job.layout, written), launch)
    place, name = doubt
    nan, zero = (
        _loaded(_built(job, (*flags, "-w", f"-ftrivial-auto-var-init={how}"), folders, clang), launch, job.file)
        for how in ("pattern", "zero")
    )
    return _Code(MetalCheckedRuns(ready, job.layout, written, CheckedVariable(place, name, (nan, zero))), launch)


def _flags(target: Target) -> tuple[str, ...]:
    kept = [flag for flag in code_flags(target) if flag not in _OTHERWISE]
    return (*kept, *CHECKED_FLAGS)


def _built(job: EmulatorJob, flags: tuple[str, ...], folders: tuple[str, ...], clang: CCompiler) -> BuiltObject:
    links = tuple(flag for flag in link_flags() if flag != _STRIPPED)
    header = precompiled_header(clang, flags, (FOLDER, HOOKS))
    use = () if header is None else ("-include-pch", str(header), "-Xclang", "-fno-validate-pch")
    return build(entry_text(job, _ENTRY), (*flags, *folders, *use, *links), clang, "c++")


def _loaded(built: BuiltObject, launch: LaunchInfo, file: str) -> Ready:
    function = load(Compiled(launch, CompiledBlob("so", built.data))).function
    return Ready(function, LineTable(built.data, (str(FOLDER), "entry")), file)


def _doubts(log: str, file: str) -> Iterator[tuple[str, str]]:
    """Yields place and name of variables in clang's warnings: ``file:line:column: warning: variable 'x' ...``."""
    for line in log.splitlines():
        head, found, said = line.partition(": warning: variable '")
        name, _, column = head.rpartition(":")
        if found and "uninitialized" in said and name.startswith(file) and column.isdigit():
            yield name, said.partition("'")[0]
