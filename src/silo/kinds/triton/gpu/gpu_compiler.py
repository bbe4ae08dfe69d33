"""Compiles Triton kernels for NVIDIA and AMD GPUs with Triton's own backends, in a worker; returns launch info."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from silo.artifacts.binary_inspection import BinaryKernel, free_of_folders, inspect_binary
from silo.artifacts.runs_on import FIRST_SPECIFIC, capability, specific_form
from silo.compile.identity import code_digest
from silo.core.code_facts import Lowered
from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo, LayoutSlot
from silo.core.plugins import is_option
from silo.core.protocols import Source
from silo.core.signature import NoDefault, ParameterKind
from silo.core.values import JSON, Value, value_from_json, value_to_json
from silo.core.variant import CacheFiles, Compiled, CompiledBlob, CompileJob, Variant
from silo.errors import CompileError, SourceError, ToolchainError
from silo.kinds.triton.front.adapter import (
    GpuStages,
    compile_gpu,
    is_gluon,
    load_gpu_backends,
    lower_for_gpu,
    make_cache_files,
    require_triton,
    triton_identity,
)
from silo.kinds.triton.front.facts import TtirFacts
from silo.kinds.triton.front.gpu_layout import argument_slots, complete_layout, launch_info, tensor_maps
from silo.kinds.triton.gpu.gpu_declaration import TRITON
from silo.settings import settings

__all__ = ["TritonCompiler"]

_BINARY_KINDS = {"cuda": "cubin", "hip": "hsaco"}
_LONGEST_MESSAGE = 1200


class _HasFunction(Protocol):
    @property
    def function(self) -> object: ...


class TritonCompiler:
    """The compiler plug-in ``triton``: source kind ``triton``, targets ``cuda:*`` and ``hip:*``. Needs no GPU."""

    declaration = TRITON

    def __init__(self) -> None:
        self._shown: tuple[CompileJob, GpuStages] | None = None

    def identity(self, target: Target) -> str:
        """The identity of Triton with its assemblers, and of Silo's code around it.

        The first call takes some milliseconds.

        Raises:
            ToolchainError: no usable Triton.
        """
        return (
            f"{triton_identity(force=settings().force_triton)} {target.kind} code {code_digest(*self.declaration.code)}"
        )

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Accepts Triton sources for cuda and hip targets with an arch that Triton supports, if Triton is usable."""
        if not (decision := self.declaration.takes(source_kind, target)):
            return decision
        if not target.is_concrete:
            example = "cuda:sm_90" if target.kind == "cuda" else "hip:gfx942"
            return Rejected(f"the target {target} names no arch and no device here gives it one; write {example}")
        if (form := _unmade_form(target)) is not None:
            return Rejected(form)
        try:
            version = require_triton(force=settings().force_triton)
        except ToolchainError as error:
            return Rejected(str(error))
        return Accepted(f"Triton {version}")

    def artifact_target(self, target: Target) -> Target:
        """The target of the code compiled for ``target``: from sm_90 on, Triton's arch has an ``a``.

        >>> str(TritonCompiler().artifact_target(Target.parse("cuda:sm_100")))
        'cuda:sm_100a'
        """
        return specific_form(target)

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Runs Triton's front end in this process. ``sm_90`` and ``sm_90a`` give equal jobs.

        Raises:
            ToolchainError: no usable Triton.
            SourceError: not a Triton source.
            CompileError: the front end refused the kernel.
        """
        function = getattr(cast("_HasFunction", source), "function", None)
        if function is None:
            raise SourceError(f"{source.name} is no Triton source: it brings no function")
        target = self.artifact_target(variant.target)
        options = self.declaration.own(tuple({**_named_as_options(variant), **dict(variant.config.options)}.items()))
        slots = argument_slots(variant.signature, variant.specialization, variant.config)
        lowered = lower_for_gpu(
            function,
            variant.signature,
            variant.specialization,
            Config(variant.config.values, options),
            target,
            tuples=getattr(source, "tuples", {}),
            force=settings().force_triton,
        )
        parameters: JSON = {
            "options": {name: value_to_json(value) for name, value in options},
            "layout": [slot.to_json() for slot in slots],
            **({"language": "gluon"} if is_gluon(function) else {}),
        }
        job = CompileJob(self.declaration.name, variant.kernel, target, lowered.text, parameters)
        return Lowered(job, TtirFacts(lowered.text, variant.signature, variant.specialization))

    def text_job(
        self, text: str, kernel: str, target: Target, launch: LaunchInfo, options: Mapping[str, int]
    ) -> CompileJob:
        """The job for TTIR from a crash report."""
        parameters: JSON = {"options": dict(options), "layout": [slot.to_json() for slot in launch.layout]}
        return CompileJob(self.declaration.name, kernel, self.artifact_target(target), text, parameters)

    def read_binary(self, variant: Variant, binary: bytes, kind: str, metadata: Mapping[str, Any]) -> LaunchInfo:
        """The launch info of a binary that Triton's own launch path compiled; see :meth:`compile`.

        Raises:
            CompileError: the binary contradicts Triton's metadata.
        """
        arguments = argument_slots(variant.signature, variant.specialization, variant.config)
        kernel = _kernel_called(str(metadata["name"]), inspect_binary(binary, kind))
        maps = tensor_maps(arguments, metadata)
        members = {**metadata, "warp_size": _warp_size(metadata)}
        return launch_info(variant.target, members, complete_layout(arguments, kernel, maps), kernel, maps)

    def warm_up(self) -> None:
        """Imports Triton's backends. Raises ToolchainError without a usable Triton."""
        load_gpu_backends(force=settings().force_triton)

    def compile(self, job: CompileJob) -> Compiled:
        """Runs Triton's backend and its assembler; reads launch info from Triton's metadata and from the binary itself.

        Raises:
            ToolchainError: no usable Triton.
            CompileError: a stage failed, or the binary contradicts the job.
        """
        options, arguments = _read_parameters(job)
        try:
            stages = _stages(job, options)
        except CompileError as error:
            raise type(error)(_shortened(str(error))) from error
        kind = _BINARY_KINDS[job.target.kind]
        entry = str(stages.metadata["name"])
        kernel = _kernel_called(entry, inspect_binary(stages.binary, kind))
        maps = tensor_maps(arguments, stages.metadata)
        launch = launch_info(job.target, stages.metadata, complete_layout(arguments, kernel, maps), kernel, maps)
        log = stages.log
        clean = free_of_folders(stages.binary, [Path.cwd(), Path(tempfile.gettempdir())])
        if not clean:
            log += f"not reproducible from another folder: {clean.reason}\n"
        return Compiled(launch, CompiledBlob(kind, stages.binary), log=log)

    def cache_files(self, job: CompileJob) -> CacheFiles:
        """The files that a compile by Triton's own launch path would write to Triton's cache.

        ``job`` holds the module's text and the parameters exactly as Triton's launch path would compile them.

        Raises:
            CompileError: the text cannot be read.
            Exception: any error of Triton's stages.
        """
        files, reason = make_cache_files(job.text, cast("Mapping[str, Any]", job.parameters))
        return CacheFiles(tuple(files.items()), reason)

    def code_forms(self, target: Target) -> tuple[str, ...]:
        """Triton's names for the text outputs of its stages: ``ttir``, ``ttgir``, ``llir`` and the assembly's name."""
        return ("ttir", "ttgir", "llir", "ptx" if target.kind == "cuda" else "amdgcn")

    def code_form(self, job: CompileJob, form: str) -> str:
        """The text that one of Triton's stages returns, for example ``ttgir`` or ``ptx``.

        Compiles in this process, once for all forms of a job. Raises the errors of :meth:`compile`.
        """
        shown = self._shown
        if shown is None or shown[0] != job:
            options, _ = _read_parameters(job)
            shown = (job, _stages(job, options))
            self._shown = shown
        return str(shown[1].stages[form])


def _named_as_options(variant: Variant) -> dict[str, Value]:
    """The values of constexpr parameters that are named like a compile option.

    As in Triton, such a value sets the option too.
    """
    values = {**dict(variant.config.values), **variant.specialization.constant_values}
    options: dict[str, Value] = {}
    for parameter in variant.signature.parameters:
        name = parameter.name
        if parameter.kind is ParameterKind.CONSTEXPR and is_option(name):
            value = values.get(name, parameter.default)
            if not isinstance(value, NoDefault):
                options[name] = value
    return options


def _stages(job: CompileJob, options: Mapping[str, Value]) -> GpuStages:
    parameters = cast("Mapping[str, Any]", job.parameters)
    gluon = parameters.get("language") == "gluon"
    return compile_gpu(job.text, job.target, options, gluon=gluon, force=settings().force_triton)


def _warp_size(metadata: Mapping[str, Any]) -> int:
    """The warp size: Triton's metadata has it in the target, and for AMD also in the options."""
    target = cast("Mapping[str, Any] | None", metadata.get("target"))
    return int(metadata["warp_size"] if target is None else target["warp_size"])


def _unmade_form(target: Target) -> str | None:
    """The reason why Triton does not compile for this arch; None if it does."""
    if target.kind == "hip":
        if target.arch.endswith("-generic"):
            return f"Triton makes no code for generic processors such as {target.arch}; name one, such as gfx942"
        return None
    if target.arch.endswith("f"):
        return f"Triton makes no family-specific code; write sm_{capability(target)} instead of {target.arch}"
    if target.arch.endswith("a") and capability(target) < FIRST_SPECIFIC:
        return f"{target.arch} does not exist: architecture-specific forms start with sm_90a"
    return None


def _shortened(message: str) -> str:
    """The start of a failed stage's message, which describes the fault; Triton prints the whole assembly after it."""
    if len(message) <= _LONGEST_MESSAGE:
        return message
    return f"{message[:_LONGEST_MESSAGE].rstrip()}\n... ({len(message) - _LONGEST_MESSAGE} characters more)"


def _read_parameters(job: CompileJob) -> tuple[dict[str, Value], tuple[LayoutSlot, ...]]:
    try:
        parameters = cast("dict[str, Any]", job.parameters)
        options = {str(name): value_from_json(value) for name, value in parameters["options"].items()}
        return options, tuple(LayoutSlot.from_json(slot) for slot in parameters["layout"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise CompileError(f"the job's parameters are not a Triton job's: {error}") from error


def _kernel_called(entry: str, kernels: tuple[BinaryKernel, ...]) -> BinaryKernel:
    for kernel in kernels:
        if kernel.entry == entry:
            return kernel
    raise CompileError(f"the binary holds {', '.join(kernel.entry for kernel in kernels)}, not {entry}")
