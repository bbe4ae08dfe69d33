"""Compiles CuTe DSL kernels for NVIDIA GPUs: the DSL's front end runs in this process, its back end in a worker.

The result is the compiled code and its launch info.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Any, Protocol, cast

from silo.artifacts.binary_inspection import inspect_binary
from silo.artifacts.runs_on import capability, specific_form
from silo.compile.identity import code_digest
from silo.core.code_facts import Lowered
from silo.core.decisions import Decision, Rejected
from silo.core.device import Target
from silo.core.protocols import Source
from silo.core.values import digest
from silo.core.variant import Compiled, CompiledBlob, CompileJob, Variant
from silo.errors import CompileError, SiloError, SourceError, ToolchainError, UnsupportedError
from silo.frozen import replace
from silo.gc_pause import seldom_collected
from silo.kinds.cute.cute_declaration import CUTE
from silo.kinds.cute.cute_job import CuteJob, host_arguments
from silo.kinds.cute.cute_launch import launch_info
from silo.kinds.cute.cute_toolchain import (
    DslBindings,
    back_end,
    bindings,
    diagnosis,
    dsl_identity,
    read_artifact,
    read_module,
    require_dsl,
    toolkit_version,
    usable,
)
from silo.kinds.cute.front.cute_installation import FRONT_END, dsl_module, dsl_version
from silo.kinds.cute.front.cute_source import HostChoice
from silo.kinds.cute.front.wrapping import Wrapper
from silo.kinds.cute.host_object import host_code_missing, host_object, linker
from silo.kinds.cute.tensor_maps import HostMaps, maps_of_kernel, read_maps
from silo.sources.kernel_source import RunsInLibrary

__all__ = ["CuteCompiler", "TracedFunction", "trace"]


# ---- The DSL's front end ----


# These functions of the DSL always read the arch, so their reads do not show that a kernel depends on it.
_ASKS_ANYWAY = frozenset({"generate_launch_op", "_is_supported_arch"})


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """The result of the front end: the artifact's bytes, and the tensor maps that its host function makes.

    ``asked_for_arch``: the kernel's code read the arch, so the artifact is for this arch alone.
    """

    artifact: bytes
    maps: HostMaps
    asked_for_arch: bool


def trace(wrapper: Wrapper, arch: str, name: str) -> TracedFunction:
    """Runs the front end; ``name`` is the kernel's name, for messages. The caller holds the front end's lock.

    Raises:
        CompileError: the front end refused the kernel; contains the DSL's diagnosis.
        ToolchainError: the DSL is missing or too old.
    """
    modules = bindings()
    cute = dsl_module("cutlass.cute")
    clean = _Cleaner(modules)
    hooks = {"trace_finalize_hooks": clean} if _calls_hooks() else {}
    # collecting garbage would free little: most objects live until the trace ends
    with _questions() as arch_reads, seldom_collected():
        try:
            artifact = cute.compile.to_precompiled_mlir(
                wrapper.function, *wrapper.arguments, options=f"--gpu-arch {arch}", **hooks
            )
        except SiloError:
            raise
        except Exception as error:  # the kernel's own Python runs here, and may raise anything
            # the DSL's own enumeration of archs lacks this arch
            if isinstance(error, KeyError) and error.args == (arch,):
                raise CompileError(
                    f"{name}: CuTe DSL {dsl_version()} knows no {arch}; name an arch such as sm_80, sm_90a, sm_100a or "
                    "sm_120a"
                ) from error
            raise CompileError(f"{name} for {arch}: {diagnosis(error)}{_author_line(error)}") from error
    if clean.module is None:
        artifact = _cleaned(artifact, clean, modules)
    return TracedFunction(
        modules.compiler.serialize_compilation_artifact(artifact), _maps_of(clean.module, modules), bool(arch_reads)
    )


def _author_line(error: BaseException) -> str:
    """Returns `` (file:line)`` of the kernel author's code in which ``error`` was raised, for the end of a message.

    "" if the line is unknown, or if the error names the file already.
    """
    folder = str(Path(dsl_module("cutlass").__file__).parent)
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    own = [(name, line) for name, line in frames if not name.startswith((folder, "<")) and name != __file__]
    if not own or own[0][0] in str(error):
        return ""
    file = own[0][0]  # the kernel's file; later frames may be in a library that calls the DSL
    return f" ({file}:{[line for name, line in own if name == file][-1]})"


def _dsl() -> Any:  # noqa: ANN401
    """Returns the DSL's singleton that kernels are traced with."""
    return dsl_module("cutlass.cutlass_dsl").CuTeDSL._get_dsl()  # noqa: SLF001


def _calls_hooks() -> bool:
    """Whether the DSL calls a hook between tracing a module and writing it. Releases from 4.8 on do."""
    return hasattr(_dsl(), "trace_finalize_hooks")


@contextmanager
def _questions() -> Generator[list[str]]:
    """Yields a list that collects, during the block, the names of functions that read the arch for the kernel."""
    dsl = _dsl()
    answer = dsl.get_arch_enum
    callers: list[str] = []

    def get_arch_enum() -> Any:  # noqa: ANN401
        caller = sys._getframe(1).f_code.co_name  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        if caller not in _ASKS_ANYWAY:
            callers.append(caller)
        return answer()

    dsl.get_arch_enum = get_arch_enum
    try:
        yield callers
    finally:
        del dsl.get_arch_enum


class _Cleaner:
    """Removes everything from a traced module that is not part of the kernel: source locations and prints.

    Before each launch the front end adds a print for shared memory beyond the arch's limit. This print would make the
    bytes depend on the arch, and Silo checks the limit itself.
    """

    def __init__(self, modules: DslBindings) -> None:
        self._modules = modules
        self.module: Any = None

    def __call__(self, _owner: object, module: Any, _function: str) -> None:  # noqa: ANN401
        """Removes source locations and prints from ``module``, in place.

        The DSL calls this hook after it has traced the module and before it writes it.
        """
        for operation in module.body.operations:
            if operation.operation.name == "func.func":
                for block in operation.regions[0].blocks:
                    _drop_prints(block)
        strip = self._modules.passes.PassManager.parse("builtin.module(strip-debuginfo)")
        # The pass runs without the verifier, because the DSL verifies modules only after its own passes, which infer
        # alignments for copies.
        strip.enable_verifier(enable=False)
        strip.run(module.operation)
        self.module = module


def _cleaned(artifact: Any, clean: _Cleaner, modules: DslBindings) -> Any:  # noqa: ANN401  # artifacts of the DSL
    """Returns the artifact without source locations and prints. Rewrites its module.

    Used with a release of the DSL that calls no hook between tracing and writing.
    """
    with modules.context():
        module = modules.ir.Module.parse(artifact.get_bitcode())
        clean(None, module, "")
        buffer = io.BytesIO()
        module.operation.write_bytecode(buffer)
    precompiled = modules.compiler.PreCompiledMlirArtifact.from_bitcode(buffer.getvalue())
    for entry in artifact.metadata:
        precompiled.metadata.append(entry)
    return precompiled


def _maps_of(module: Any, modules: DslBindings) -> HostMaps:  # noqa: ANN401
    with module.context, modules.ir.Location.unknown():
        return read_maps(module, modules.ir)


def _drop_prints(block: Any) -> None:  # noqa: ANN401
    for view in list(block.operations):
        operation = view.operation
        if operation.name == "scf.if" and not len(operation.results) and _only_prints(operation):
            conditions = [operand.owner for operand in operation.operands]
            operation.erase()
            _drop_unused(conditions)


def _only_prints(operation: Any) -> bool:  # noqa: ANN401
    inside = [
        operation.operation.name
        for region in operation.regions
        for block in region.blocks
        for operation in block.operations
    ]
    return "cute.print" in inside and set(inside) <= {"cute.print", "scf.yield"}


def _drop_unused(owners: list[Any]) -> None:
    """Erases comparisons and constants without uses."""
    while owners:
        owner = owners.pop()
        if getattr(owner, "name", "") not in ("arith.cmpi", "arith.constant"):
            continue
        if any(list(result.uses) for result in owner.results):
            continue
        owners += [operand.owner for operand in owner.operands]
        owner.erase()


# ---- The compiler plug-in ----


_log = logging.getLogger("silo")
_OLDEST = 80
_ANY_ARCH = Target("cuda")
_MOST_TRACED = 256  # the most jobs that ``_keep`` stores; each takes some 10 KB


class _HasWrapper(Protocol):
    def wrapper(self, variant: Variant) -> Wrapper: ...


class CuteCompiler:
    """The plug-in ``cute``: source kind ``cute``, targets ``cuda:*``. Needs no GPU, driver or toolkit."""

    declaration = CUTE

    def __init__(self) -> None:
        # jobs of kernels that do not read the arch, by their inputs; used under the front end's lock
        self._traced: dict[str, CuteJob] = {}

    def identity(self, target: Target) -> str:
        """Returns the version of the DSL and of its CUDA toolkit, and the digest of Silo's code.

        Does not import the DSL.

        Raises:
            ToolchainError: the DSL is missing or too old.
        """
        del target
        return f"{dsl_identity()} code {code_digest(*self.declaration.code)}"

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Accepts CuTe sources for an arch that the DSL supports, if the DSL is installed."""
        if not (decision := self.declaration.takes(source_kind, target)):
            return decision
        if not target.is_concrete:
            return Rejected(f"the target {target} names no arch and no device here gives it one; write cuda:sm_90a")
        if capability(target) < _OLDEST:
            return Rejected(f"the CuTe DSL compiles for sm_{_OLDEST} and later, not for {target.arch}")
        return usable()

    def artifact_target(self, target: Target) -> Target:
        """Returns the target of code made for ``target``: from sm_90 on the arch with an ``a``, as the DSL itself does.

        A device's target is ``sm_90``, but kernels that use Hopper's tensor cores compile only for ``sm_90a``.

        >>> str(CuteCompiler().artifact_target(Target.parse("cuda:sm_90")))
        'cuda:sm_90a'
        """
        return specific_form(target)

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Traces the source's wrapper with the DSL's front end, under the front end's lock.

        Raises:
            ToolchainError: the DSL is missing or too old.
            SourceError: not a CuTe source, or an error of its author.
            CompileError: the front end refused the kernel.
        """
        if not hasattr(source, "wrapper"):
            raise SourceError(f"{source.name} is no CuTe source: it brings no wrapper")
        version = require_dsl()
        key = digest("cute-trace/1", replace(variant, target=_ANY_ARCH).to_json())
        target = self.artifact_target(variant.target)
        with FRONT_END:
            job = self._traced.get(key)
            if job is None:
                wrapper = cast("_HasWrapper", source).wrapper(variant)
                traced = trace(wrapper, target.arch, variant.kernel)
                job = CuteJob(
                    artifact=traced.artifact,
                    dsl=version,
                    toolkit=toolkit_version(),
                    arguments=host_arguments(wrapper),
                    block=wrapper.block,
                    cluster=wrapper.cluster,
                    smem=wrapper.smem,
                    grid=variant.specialization.grid,
                    maps=traced.maps,
                )
                if isinstance(source, RunsInLibrary) and (source.in_library or self._needs_dsl(source, variant, job)):
                    job = replace(job, host="dsl", parameters=variant.signature.names, linker=linker().version)
                if not traced.asked_for_arch:
                    self._keep(key, job)
        return Lowered(job.to_job(variant.kernel, target))

    def _needs_dsl(self, source: Source, variant: Variant, job: CuteJob) -> bool:
        """Whether the DSL's own host code must launch a source with ``host="auto"``.

        Compiles the source's first variant to find out, unless the choice was made already.
        """
        choice = getattr(source, "host_choice", None)
        if not isinstance(choice, HostChoice) or not choice.open:
            return False
        try:
            self.compile(job.to_job(variant.kernel, self.artifact_target(variant.target)))
        except UnsupportedError as error:
            missing = host_code_missing()
            if missing:
                _log.info('%s: host="dsl" would launch it, but %s', variant.kernel, missing)
                return False  # the worker fails too, and its error has the reason and the remedy
            choice.reason = str(error)
            _log.warning(
                "%s is launched by the DSL's own host code, which is native code and needs the DSL's library where it "
                'runs (host="dsl" of silo.cute): %s',
                variant.kernel,
                choice.reason.partition("; let the DSL")[0],
            )
        except CompileError:
            return False  # this config fails again in a worker, with the reason; the choice is left to the next config
        choice.open = False
        return bool(choice.reason)

    def _keep(self, key: str, job: CuteJob) -> None:
        """Stores a job that is valid for every arch, and drops the oldest beyond ``_MOST_TRACED``."""
        self._traced[key] = job
        if len(self._traced) > _MOST_TRACED:
            del self._traced[next(iter(self._traced))]

    def warm_up(self) -> None:
        """Imports the DSL. Raises ToolchainError if it is missing or too old."""
        bindings()

    def compile(self, job: CompileJob) -> Compiled:
        """Compiles a job with the DSL's back end. Reads and imports no source of the user.

        Raises:
            ToolchainError: the DSL is missing, too old, or of another version than the job's.
            CompileError: the back end refused the kernel, or Silo cannot launch the result.
        """
        cute = CuteJob.from_job(job)
        versions = (require_dsl(), toolkit_version())
        if versions != (cute.dsl, cute.toolkit):
            raise ToolchainError(
                f"{job.kernel} was lowered by CuTe DSL {cute.dsl} with CUDA {cute.toolkit}, and this worker has CuTe "
                f"DSL {versions[0]} with CUDA {versions[1]}: an artifact is for its own version alone; compile with one"
            )
        modules = bindings()
        try:
            if cute.host == "dsl":
                return host_object(cute, job.target, modules)
            artifact = read_artifact(cute.artifact, modules)
            call, cubin = read_module(back_end(artifact, job.target.arch, modules), modules)
            maps = maps_of_kernel(cute.maps, call)
            launch = launch_info(call, cute, inspect_binary(cubin, "cubin"), job.target, maps)
        except CompileError as error:
            raise type(error)(f"{job.kernel} for {job.target}: {error}") from error
        log = f"CuTe DSL {cute.dsl}, CUDA {cute.toolkit}\n"
        return Compiled(launch, CompiledBlob("cubin", cubin), log=log)
