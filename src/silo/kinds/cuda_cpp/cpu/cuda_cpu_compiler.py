"""CUDA C++ for the CPU: clang compiles the unchanged text, in a worker process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from silo.core.code_facts import Lowered
from silo.core.device import Target
from silo.core.protocols import CheckedKernel, Source
from silo.core.signature import Effect
from silo.core.variant import Compiled, CompileJob, Variant
from silo.emulation.clang import STACK, find_clang
from silo.emulation.emulated_compiler import EmulatedCompiler
from silo.frozen import replace
from silo.kinds.cuda_cpp.cpu.cpu_build import code_flags, compile_unit, cpu_identity, group_memory
from silo.kinds.cuda_cpp.cpu.cpu_declaration import CUDACPU
from silo.kinds.cuda_cpp.cpu.cpu_text import entry_text, may_wait
from silo.kinds.cuda_cpp.nvrtc_compiler import lowered_unit, read_unit

__all__ = ["CudaCpuCompiler"]


class CudaCpuCompiler(EmulatedCompiler):
    """The plug-in ``cudacpu``: source kind ``cuda``, targets ``cpu:*``. Each block becomes a program."""

    declaration = CUDACPU
    subject = "CUDA C++ on the CPU"

    def identity(self, target: Target) -> str:
        """Returns the digest of Silo's code and of the header of CUDA's language, and clang's version and flags.

        Runs clang once.

        Raises:
            CompilerMissingError: no suitable clang.
        """
        return cpu_identity(target, find_clang(), self.declaration.code)

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """Returns a job with the texts, the macros and the launch.

        Raises:
            SourceError: not a CUDA source, or its parameters cannot be passed.
            CompileError: a constant without a value, or an invalid launch.
        """
        lowered = lowered_unit(self.declaration.name, source, variant, variant.target)
        options = CUDACPU.read(CUDACPU.own(variant.config.options))
        parameters = {**cast("dict[str, object]", lowered.job.parameters), **options}
        return replace(lowered, job=replace(lowered.job, parameters=parameters))

    def compile(self, job: CompileJob) -> Compiled:
        """Compiles the text with clang.

        Raises:
            CompileError: clang refuses the text, or the text uses a part of CUDA that the CPU lacks; the message has
                the line.
            CompilerMissingError: no suitable clang.
        """
        parameters = cast("Mapping[str, int]", job.parameters)
        options = [(option.name, parameters.get(option.name, 0)) for option in CUDACPU.options]
        return compile_unit(job, read_unit(job), find_clang(), self.identity(job.target), options)

    def check_source(self, source: Source, variant: Variant, *, nan: bool) -> CheckedKernel:
        """Returns code that checks each of its memory accesses; its findings name lines of the text."""
        del nan  # the code is the same with and without the NaN check: the limits of each launch enable the check
        lowered = self.lower(source, variant)
        return self._checked(variant, lowered.job, lowered.facts.effects)

    def _check_level(self, target: Target) -> None:
        code_flags(target, waits=True)

    def _entry_text(self, job: CompileJob) -> str:
        unit = read_unit(job)
        return entry_text(unit, "silo_entry", waits=may_wait(unit), stack=STACK, memory=group_memory(unit))

    def _checked(self, variant: Variant, job: CompileJob, effects: Mapping[str, Effect]) -> CheckedKernel:
        from silo.kinds.cuda_cpp.cpu.checked_build import compile_checked  # noqa: PLC0415  # for ``silo check`` alone

        unit = read_unit(job)
        slot_effects = tuple(effects.get(slot.name, Effect.READ) for slot in unit.layout)
        return compile_checked(variant.kernel, unit, slot_effects, target=variant.target, clang=find_clang())
