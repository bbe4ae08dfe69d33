"""Metal kernels for the CPU: translates a text to C++, and compiles it with clang in a worker."""

from __future__ import annotations

from collections.abc import Mapping

from silo.core.code_facts import CodeFacts, Lowered
from silo.core.device import Target
from silo.core.protocols import CheckedKernel, Source
from silo.core.signature import Effect, ParameterKind, Signature
from silo.core.variant import Compiled, CompileJob, Variant
from silo.emulation.clang import find_clang
from silo.emulation.emulated_compiler import EmulatedCompiler
from silo.errors import SourceError
from silo.kinds.metal.clang import code_flags
from silo.kinds.metal.compile_job import compile_job, emulator_identity, entry_text
from silo.kinds.metal.front.metal_source import MetalSource
from silo.kinds.metal.metal_declaration import EMULATOR
from silo.kinds.metal.metal_job import EmulatorJob, lowered_job

__all__ = ["EmulatorCompiler"]


class _Facts(CodeFacts):
    """The facts of code of a Metal kernel: only the effects of its arrays, taken from the typed signature."""

    def __init__(self, signature: Signature) -> None:
        self._effects = {
            parameter.name: parameter.effect
            for parameter in signature.parameters
            if parameter.kind is ParameterKind.POINTER
        }

    @property
    def effects(self) -> Mapping[str, Effect]:
        """The effect through each array parameter, from the source's signature."""
        return self._effects


class EmulatorCompiler(EmulatedCompiler):
    """The plug-in ``metalcpu``: source kind ``metal``, targets ``cpu:*``. Each threadgroup becomes a program."""

    declaration = EMULATOR
    subject = "the Metal emulator"

    def identity(self, target: Target) -> str:
        """Returns the digest of Silo's code and of Metal's library, and clang's version and flags. Runs clang once.

        Raises:
            CompilerMissingError: no suitable clang.
        """
        return emulator_identity(target, find_clang(), self.declaration.code)

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Returns a job with the text as C++, and the arguments of the kernel's function.

        Raises:
            SourceError: not a Metal source.
            CompileError: a constant without a value, or an invalid threadgroup.
        """
        job = _job(source, variant)
        return Lowered(job.to_job(variant.kernel, variant.target), _Facts(source.signature))

    def compile(self, job: CompileJob) -> Compiled:
        """Compiles the library and the text with clang.

        Raises:
            CompileError: clang refuses the text; the message has the lines of the text.
            CompilerMissingError: no suitable clang.
        """
        return compile_job(job, find_clang(), self.identity(job.target))

    def check_source(self, source: Source, variant: Variant, *, nan: bool) -> CheckedKernel:
        """Returns code that checks each of its memory accesses; its findings name lines of the text."""
        del nan  # the code is the same with and without the NaN check: the limits of each launch enable the check
        job = _job(source, variant).to_job(variant.kernel, variant.target)
        return self._checked(
            variant, job, {parameter.name: parameter.effect for parameter in source.signature.parameters}
        )

    def _check_level(self, target: Target) -> None:
        code_flags(target)

    def _entry_text(self, job: CompileJob) -> str:
        return entry_text(EmulatorJob.from_job(job), "silo_entry")

    def _checked(self, variant: Variant, job: CompileJob, effects: Mapping[str, Effect]) -> CheckedKernel:
        from silo.kinds.metal.checking.compiling import compile_checked  # noqa: PLC0415  # for ``silo check`` alone

        own = EmulatorJob.from_job(job)
        slot_effects = tuple(effects.get(slot.name, Effect.BOTH) for slot in own.layout)
        return compile_checked(variant.kernel, own, slot_effects, target=variant.target, clang=find_clang())


def _job(source: Source, variant: Variant) -> EmulatorJob:
    if not isinstance(source, MetalSource):
        raise SourceError(f"{source.name} is a {source.kind} source; the Metal emulator takes metal sources")
    return lowered_job(source, variant)
