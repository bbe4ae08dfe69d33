"""CuTe DSL kernels for NVIDIA GPUs: the DSL's front end here, its back end in a worker; returns launch info."""

from __future__ import annotations

from typing import Protocol, cast

from silo.artifacts.binary_inspection import inspect_binary
from silo.artifacts.runs_on import capability, specific_form
from silo.compile.identity import code_digest
from silo.core.code_facts import Lowered
from silo.core.decisions import Decision, Rejected
from silo.core.protocols import Source
from silo.core.target import Target
from silo.core.values import digest
from silo.core.variant import Compiled, CompiledBlob, CompileJob, Variant
from silo.errors import CompileError, SourceError, ToolchainError
from silo.frozen import replace
from silo.kinds.cute.compiled_module import back_end, read_artifact, read_module
from silo.kinds.cute.cute_declaration import CUTE
from silo.kinds.cute.cute_job import CuteJob, host_arguments
from silo.kinds.cute.cute_launch import launch_info
from silo.kinds.cute.cute_lowering import trace
from silo.kinds.cute.cute_toolchain import bindings, dsl_identity, require_dsl, toolkit_version, usable
from silo.kinds.cute.front.cute_installation import FRONT_END
from silo.kinds.cute.front.wrapping import Wrapper
from silo.kinds.cute.host_object import host_object, linker
from silo.kinds.cute.tensor_maps import maps_of_kernel
from silo.sources.kernel_source import RunsInLibrary

__all__ = ["CuteCompiler"]

_OLDEST = 80
_ANY_ARCH = Target("cuda")
_MOST_TRACED = 256  # some 10 KB each


class _HasWrapper(Protocol):
    def wrapper(self, variant: Variant) -> Wrapper: ...


class CuteCompiler:
    """The plug-in ``cute``: source kind ``cute``, targets ``cuda:*``. Needs no GPU, driver or toolkit."""

    declaration = CUTE

    def __init__(self) -> None:
        self._traced: dict[str, CuteJob] = {}  # of kernels that do not read the arch; under the front end's lock

    def identity(self, target: Target) -> str:
        """Returns the DSL's version with its CUDA toolkit, and the digest of Silo's code. Does not import the DSL.

        Raises:
            ToolchainError: the DSL is missing or too old.
        """
        del target
        return f"{dsl_identity()} code {code_digest(*self.declaration.code)}"

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Accepts CuTe sources for an arch that the DSL supports, if the DSL is installed."""
        if not (taken := self.declaration.takes(source_kind, target)):
            return taken
        if not target.is_concrete:
            return Rejected(f"the target {target} names no arch and no device here gives it one; write cuda:sm_90a")
        if capability(target) < _OLDEST:
            return Rejected(f"the CuTe DSL compiles for sm_{_OLDEST} and later, not for {target.arch}")
        return usable()

    def artifact_target(self, target: Target) -> Target:
        """Returns the target of the code made for ``target``: from sm_90 on the ``a`` form, as in the DSL itself.

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
                if isinstance(source, RunsInLibrary) and source.in_library:
                    job = replace(job, host="dsl", parameters=variant.signature.names, linker=linker().version)
                if not traced.asked_for_arch:
                    self._keep(key, job)
        return Lowered(job.to_job(variant.kernel, target))

    def _keep(self, key: str, job: CuteJob) -> None:
        """Keeps a job that serves every arch, and drops the oldest beyond ``_MOST_TRACED``."""
        self._traced[key] = job
        if len(self._traced) > _MOST_TRACED:
            del self._traced[next(iter(self._traced))]

    def warm_up(self) -> None:
        """Imports the DSL. Raises ToolchainError if it is missing or too old."""
        bindings()

    def compile(self, job: CompileJob) -> Compiled:
        """Compiles a job with the DSL's back end; reads and imports no source of the user.

        Raises:
            ToolchainError: the DSL is missing, too old, or of another version than the job's.
            CompileError: the back end refused the kernel, or Silo cannot launch the result.
        """
        cute = CuteJob.from_job(job)
        here = (require_dsl(), toolkit_version())
        if here != (cute.dsl, cute.toolkit):
            raise ToolchainError(
                f"{job.kernel} was lowered by CuTe DSL {cute.dsl} with CUDA {cute.toolkit}, and this worker has CuTe "
                f"DSL {here[0]} with CUDA {here[1]}: an artifact is for its own version alone; compile with one"
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
