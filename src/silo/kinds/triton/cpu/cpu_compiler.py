"""Compiler plug-in: compiles Triton sources to shared objects for the CPU.

A process whose code is all in the store uses this module only to compute the compiler's identity. The modules that make
jobs (:mod:`silo.kinds.triton.cpu.cpu_jobs`) and checks are imported when they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping

from silo.compile.c_compiler import CCompiler, find_compiler
from silo.core.code_facts import Lowered
from silo.core.config import Config
from silo.core.consent import Consent, require_text_consent
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo, LayoutSlot
from silo.core.protocols import CheckedKernel, Source
from silo.core.values import JSON
from silo.core.variant import Compiled, CompileJob, Variant
from silo.drivers.cpu.levels import level_of
from silo.errors import CompilerMissingError, SourceError, TargetError
from silo.kinds.triton.cpu.code_options import CpuOptions
from silo.kinds.triton.cpu.cpu_declaration import CPU
from silo.kinds.triton.cpu.cpu_identity import compiler_identity
from silo.kinds.triton.cpu.object_build import llvm_of
from silo.kinds.triton.front.triton_source import TritonSource
from silo.settings import settings

__all__ = ["CpuCompiler"]


class CpuCompiler:
    """Compiles ``triton`` sources for ``cpu`` targets with the system's C compiler.

    ``reference`` selects the mode that fuses nothing, the oracle of the optimized mode.
    """

    def __init__(self, *, reference: bool = False) -> None:
        self._reference = reference

    declaration = CPU

    def identity(self, target: Target) -> str:
        """The identity of Triton, Silo's own code, the C compiler and its flags. Runs the C compiler once per process.

        Raises:
            CompilerMissingError: no usable C compiler.
            ToolchainError: no usable Triton.
        """
        return compiler_identity(level_of(target), _toolchain(target))

    def artifact_target(self, target: Target) -> Target:
        """Returns ``target``: code is compiled for exactly the target that was requested."""
        return target

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Accepts Triton sources for a CPU level, if a C compiler is installed."""
        if not (decision := self.declaration.takes(source_kind, target)):
            return decision
        try:
            level_of(target)
            toolchain = _toolchain(target)
        except (TargetError, CompilerMissingError) as error:
            return Rejected(str(error))
        return Accepted(f"compiled by {toolchain.version}")

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Runs Triton's front end. Configs that differ only in options of GPUs give equal jobs.

        Raises:
            SourceError: not a Triton source, or Triton refuses it.
            CompileError: an option of the CPU has an invalid value.
            UnsupportedError: the CPU cannot express an operation; the message lists each with its place and count.
        """
        from silo.kinds.triton.cpu.cpu_jobs import lowered  # noqa: PLC0415  # stored code needs none of it

        triton, bits = _triton(source), level_of(variant.target).vector_bits
        options = CpuOptions.of(variant.config, "reference" if self._reference else "optimized", bits)
        return lowered(triton, variant, options)

    def compile(self, job: CompileJob) -> Compiled:
        """Parses and verifies the job's text, emits C, and builds the shared object.

        Raises:
            CompileError: the text or the parameters are invalid, or the C compiler refused.
        """
        from silo.kinds.triton.cpu.cpu_jobs import compile_ttir  # noqa: PLC0415  # stored code needs none of it

        return compile_ttir(job, _toolchain(job.target))

    def code_forms(self, target: Target) -> tuple[str, ...]:
        """The names of the forms that :meth:`code_form` returns: the module in MLIR's generic form, and the C text."""
        del target
        return ("ttir", "c")

    def code_form(self, job: CompileJob, form: str) -> str:
        """The job's code in the given form; ``llir`` is LLVM IR of the C text, if clang is installed. Builds nothing.

        Raises:
            CompileError: see :meth:`compile`.
            ToolchainError: no clang.
        """
        if form == "ttir":
            return job.text
        from silo.kinds.triton.cpu.cpu_jobs import emit_job  # noqa: PLC0415  # stored code needs none of it

        emitted = emit_job(job, _toolchain(job.target))
        return emitted.text if form == "c" else llvm_of(emitted.text, emitted.flags)

    def check_source(self, source: Source, variant: Variant, *, nan: bool) -> CheckedKernel:
        """Compiles ``source`` to code that checks each memory access and reports faults with their source lines.

        The kernel's assertions are kept. With ``nan``, the code also reports operations that make a NaN.
        """
        text, layout = self.text_to_check(source, variant)
        return self._checked(text, variant, layout, nan=nan)

    def text_to_check(self, source: Source, variant: Variant) -> tuple[str, tuple[LayoutSlot, ...]]:
        """The TTIR that :meth:`check_source` compiles, and the parameters of the kernel."""
        from silo.kinds.triton.cpu.cpu_jobs import located_text  # noqa: PLC0415  # few kernels are checked

        return located_text(_triton(source), variant)

    def check_text(
        self, text: str, variant: Variant, launch: LaunchInfo, *, nan: bool, consent: Consent
    ) -> CheckedKernel:
        """Compiles code that checks each memory access, from the TTIR of an artifact."""
        require_text_consent(consent, text, launch, variant.signature, variant.kernel)
        return self._checked(text, variant, launch.layout, nan=nan)

    def describe_text(self, text: str, launch: LaunchInfo, config: Config) -> Mapping[str, JSON]:
        """Returns the parameters of the kernel in ``text``, and the arguments on which its memory accesses depend."""
        from silo.kinds.triton.front.text_description import describe_ttir, plain_launch  # noqa: PLC0415  # of crashes

        return describe_ttir(text, plain_launch(launch), config.as_dict())

    @staticmethod
    def _checked(text: str, variant: Variant, layout: tuple[LayoutSlot, ...], *, nan: bool) -> CheckedKernel:
        from silo.kinds.triton.cpu.checking.checked_code import compile_checked  # noqa: PLC0415  # few kernels are checked

        level = level_of(variant.target)
        return compile_checked(
            variant.kernel,
            text,
            layout,
            level=level,
            options=CpuOptions.of(variant.config, "reference", level.vector_bits),
            nan=nan,
            toolchain=_toolchain(variant.target),
        )


def _toolchain(target: Target) -> CCompiler:
    """The C compiler for the target's machines. Raises CompilerMissingError."""
    return find_compiler(settings().cc, family="aarch64" if target.arch.startswith("aarch64") else "x86-64")


def _triton(source: Source) -> TritonSource:
    if not isinstance(source, TritonSource):
        raise SourceError(f"{source.name} is a {source.kind} source; the CPU compiler takes triton sources")
    return source
