"""CUDA C++ for NVIDIA GPUs: NVRTC makes a cubin in a worker, and the cubin's tables are compared with the launch."""

from __future__ import annotations

import contextlib
import ctypes
import math
import resource
from collections.abc import Generator, Mapping

from silo.artifacts.binary_inspection import BinaryKernel, inspect_binary
from silo.artifacts.device_code import check_layout
from silo.artifacts.runs_on import specific_form
from silo.compile.identity import code_digest
from silo.core.code_facts import CodeFacts, Lowered
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo, format_block
from silo.core.protocols import Source
from silo.core.signature import Effect, ParameterKind, Signature
from silo.core.variant import Compiled, CompiledBlob, CompileJob, Variant
from silo.errors import CompileError, CompilerMissingError, SourceError
from silo.kinds.cuda_cpp.cuda_declaration import NVRTC
from silo.kinds.cuda_cpp.cuda_source import CudaSource
from silo.kinds.cuda_cpp.cuda_unit import CudaUnit, Form
from silo.kinds.cuda_cpp.nvrtc import find_nvrtc, load_nvrtc
from silo.kinds.cuda_cpp.nvrtc_process import ask_nvrtc, macro_options
from silo.kinds.cuda_cpp.user_headers import cause_of
from silo.settings import settings

__all__ = ["EffectFacts", "NvrtcCompiler", "launch_of", "lowered_unit", "read_unit"]

_FORMS = ("cu", "ptx")
_POINTING = (ParameterKind.POINTER, ParameterKind.DESCRIPTOR)


class EffectFacts(CodeFacts):
    """The facts of code of a CUDA C++ kernel: only the effects of its arrays, taken from the typed signature."""

    def __init__(self, signature: Signature) -> None:
        self._effects = {
            parameter.name: parameter.effect for parameter in signature.parameters if parameter.kind in _POINTING
        }

    @property
    def effects(self) -> Mapping[str, Effect]:
        """The effects in the source's signature."""
        return self._effects


class NvrtcCompiler:
    """The plug-in ``nvrtc``: source kind ``cuda``, targets ``cuda:*``. Needs no GPU."""

    declaration = NVRTC

    def identity(self, target: Target) -> str:
        """Returns the digest of Silo's code, and NVRTC's build. Raises CompilerMissingError."""
        del target
        return f"nvrtc code {code_digest(*self.declaration.code)} nvrtc {find_nvrtc().major} {find_nvrtc().build}"

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Accepts CUDA C++ for an NVIDIA arch, if NVRTC is installed."""
        if not (decision := self.declaration.takes(source_kind, target)):
            return decision
        try:
            installation = find_nvrtc()
        except CompilerMissingError as error:
            return Rejected(str(error))
        return Accepted(f"compiled by NVRTC {installation.major} ({installation.origin}, {installation.build})")

    def artifact_target(self, target: Target) -> Target:
        """Returns the target with the arch's own features: ``sm_90a`` for ``sm_90``, like Triton's compiler."""
        return specific_form(target)

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Returns a job with the texts, the macros and the launch.

        Raises:
            SourceError: not a CUDA source, or its parameters cannot be passed.
            CompileError: a constant without a value, or an invalid launch.
        """
        return lowered_unit(self.declaration.name, source, variant, self.artifact_target(variant.target))

    def compile(self, job: CompileJob) -> Compiled:
        """Compiles to a cubin, and compares its tables with the layout and the block.

        Raises:
            CompileError: NVRTC refuses the text, with the first cause and its line; or the launch does not fit.
            ToolchainError: NVRTC does not load, or its headers cannot be written.
        """
        unit = read_unit(job)
        library = load_nvrtc(find_nvrtc())
        folders = [f"-I{header}" for header in library.headers()]
        options = [f"-arch={job.target.arch}", *library.flags(), *folders, *_options(unit)]
        try:
            with _bounded_memory():
                output = library.compile(unit.text, options, [unit.expression], "CUBIN")
        except CompileError as error:
            raise CompileError(cause_of(str(error), job.kernel, unit)) from None
        (entry,) = output.names
        try:
            kernels = {kernel.entry: kernel for kernel in inspect_binary(output.data, "cubin")}
        except CompileError as error:
            raise CompileError(
                f"{job.kernel}: {error}: the text declares {unit.expression}, and does not define it"
            ) from error
        if entry not in kernels:
            raise CompileError(f"{job.kernel}: NVRTC made no kernel {entry}; it made {', '.join(kernels)}")
        return Compiled(launch_of(job.kernel, unit, kernels[entry]), CompiledBlob("cubin", output.data), log=output.log)

    def code_forms(self, target: Target) -> tuple[str, ...]:
        """Returns the forms that a job can show: its text with its macros, and PTX."""
        del target
        return _FORMS

    def code_form(self, job: CompileJob, form: str) -> str:
        """Returns the text or the PTX. Raises CompileError like :meth:`compile`."""
        unit = read_unit(job)
        if form == "cu":
            macros = "".join(f"#define {name} {value}\n" for name, value in unit.defines)
            return f'// {unit.expression}\n{macros}#line 1 "{unit.text.file}"\n{unit.text.text}'
        if form != "ptx":
            raise CompileError(f"{job.kernel}: code of NVRTC has no form {form}; it has {', '.join(_FORMS)}")
        options = [f"-arch={job.target.arch.replace('sm_', 'compute_')}", *_options(unit)]
        try:
            return ask_nvrtc(unit.text, options, [unit.expression], "PTX").data.rstrip(b"\0").decode()
        except CompileError as error:
            raise CompileError(cause_of(str(error), job.kernel, unit)) from None


def _options(unit: CudaUnit) -> list[str]:
    return [*unit.flags, *macro_options(unit.defines)]


def lowered_unit(compiler: str, source: Source, variant: Variant, target: Target) -> Lowered:
    """Returns the job of a CUDA source's variant for the plug-in ``compiler``. Raises SourceError, CompileError."""
    if not isinstance(source, CudaSource):
        raise SourceError(f"{source.name} is a {source.kind} source, not one of CUDA C++")
    unit = source.unit(variant)
    job = CompileJob(compiler, source.name, target, unit.text.text, unit.parameters_to_json())
    return Lowered(job, EffectFacts(variant.signature.with_effects(_effects(source))))


def _effects(source: CudaSource) -> dict[str, Effect]:
    return {value.name: value.effect for value in source.passed if value.type.form != Form.SCALAR}


def read_unit(job: CompileJob) -> CudaUnit:
    """Returns the unit of a job. Raises CompileError if the job is another compiler's, or damaged."""
    try:
        return CudaUnit.from_parameters(job.text, job.parameters)
    except (TypeError, KeyError, ValueError) as error:
        raise CompileError(f"{job.kernel}: the job is not one of CUDA C++: {error}") from error


def launch_of(kernel: str, unit: CudaUnit, binary_kernel: BinaryKernel, warp: int = 32) -> LaunchInfo:
    """Returns the launch info, after comparing the launch with ``binary_kernel``, the kernel in the binary.

    Raises:
        CompileError: the binary has other parameters or requires another block, or no block was given.
    """
    try:
        check_layout(binary_kernel, unit.layout)
    except SourceError as error:
        raise CompileError(f"{kernel}: {error}") from error
    block = unit.block if unit.block != (0, 0, 0) else binary_kernel.required_block
    if block is None:
        limit = f" (at most {binary_kernel.most_threads})" if binary_kernel.most_threads is not None else ""
        raise CompileError(f"{kernel}: how many threads has a block? Give threads=, for example threads=256{limit}")
    threads = math.prod(block)
    if binary_kernel.required_block not in (None, block):
        raise CompileError(
            f"{kernel}: threads is {format_block(block)}, and {unit.expression} was compiled for exactly "
            f"{format_block(binary_kernel.required_block)}"
        )
    if binary_kernel.most_threads is not None and threads > binary_kernel.most_threads:
        raise CompileError(
            f"{kernel}: threads is {format_block(block)}, {threads} in all, and the launch bounds of {unit.expression} "
            f"allow {binary_kernel.most_threads}"
        )
    cluster = unit.cluster if unit.cluster != (0, 0, 0) else binary_kernel.cluster or (1, 1, 1)
    if binary_kernel.cluster not in (None, cluster):
        raise CompileError(
            f"{kernel}: cluster is {format_block(cluster)}, and {unit.expression} was compiled for "
            f"{format_block(binary_kernel.cluster)}"
        )
    return LaunchInfo(
        entry=binary_kernel.entry,
        layout=unit.layout,
        num_warps=-(-threads // warp),
        threads=threads,
        block=block,
        cluster=cluster,
        shared_bytes=unit.shared_bytes,
        cooperative=unit.cooperative,
        pdl=unit.pdl,
        tensor_maps=unit.maps,
        registers=binary_kernel.registers,
        spills=binary_kernel.spills,
    )


@contextlib.contextmanager
def _bounded_memory() -> Generator[None]:
    """Returns a context in which the address space of the process is limited to the compilers' limit.

    At its end unused heap memory is freed: the worker process continues to live, and after a compile with cub's headers
    it would otherwise keep some 200 MB.
    """
    limit = settings().compile_bytes
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    lower = limit and (soft == resource.RLIM_INFINITY or limit < soft)
    if lower:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        if lower:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        with contextlib.suppress(OSError, AttributeError):  # the C library is not glibc
            ctypes.CDLL(None).malloc_trim(0)
