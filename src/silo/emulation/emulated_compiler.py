"""The base class of compilers that make CPU code from a GPU language, with clang in a worker process."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import ClassVar

from silo.core.consent import Consent, require_text_consent
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.declaration import CompilerDeclaration
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo
from silo.core.protocols import CheckedKernel
from silo.core.signature import Effect
from silo.core.values import parse_json
from silo.core.variant import CompileJob, Variant
from silo.emulation.clang import find_clang
from silo.errors import CompileError, CompilerMissingError, TargetError

__all__ = ["EmulatedCompiler"]


class EmulatedCompiler(abc.ABC):
    """The methods that compilers for the CPU share. A subclass adds methods that read the sources and jobs of a kind.

    ``subject`` names the compiler in messages.
    """

    declaration: ClassVar[CompilerDeclaration]
    subject: ClassVar[str]

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """Accepts the kind's sources for a CPU level, if a suitable clang is installed."""
        if not (accepted := self.declaration.takes(source_kind, target)):
            return accepted
        try:
            self._check_level(target)
            clang = find_clang()
        except (TargetError, CompilerMissingError) as error:
            return Rejected(str(error))
        return Accepted(f"run on the CPU, compiled by {clang.version}")

    def artifact_target(self, target: Target) -> Target:
        """Returns the target of an artifact compiled for ``target``, a level of CPU instructions: ``target`` itself.

        The code runs on every CPU that has these instructions.
        """
        return target

    def code_forms(self, target: Target) -> tuple[str, ...]:
        """Returns the name of the only form: clang's input."""
        del target
        return ("c++",)

    def code_form(self, job: CompileJob, form: str) -> str:
        """Returns clang's input, with the entry function. Raises CompileError like ``compile``."""
        if form != "c++":
            raise CompileError(f"{job.kernel}: code of {self.subject} has no form {form}; it has c++")
        return self._entry_text(job)

    def check_text(
        self, text: str, variant: Variant, launch: LaunchInfo, *, nan: bool, consent: Consent
    ) -> CheckedKernel:
        """Compiles ``text`` to code that checks its memory accesses.

        ``text`` is a compile job as JSON, as it is stored beside an artifact.
        """
        # the code is the same with and without the NaN check, which the limits (``CheckLimits``) of each launch turn on
        del nan
        require_text_consent(consent, text, launch, variant.signature, variant.kernel)
        effects = {parameter.name: parameter.effect for parameter in variant.signature.parameters}
        try:
            job = CompileJob.from_json(parse_json(text.encode()))
            return self._checked(variant, job, effects)
        except ValueError as error:
            raise CompileError(f"{variant.kernel}: its text is no job of {self.subject}: {error}") from error

    @abc.abstractmethod
    def _check_level(self, target: Target) -> None:
        """Raises TargetError if no code can be made for this level."""

    @abc.abstractmethod
    def _entry_text(self, job: CompileJob) -> str:
        """Returns clang's input. Raises CompileError."""

    @abc.abstractmethod
    def _checked(self, variant: Variant, job: CompileJob, effects: Mapping[str, Effect]) -> CheckedKernel:
        """Compiles the job's kernel to code that checks each of its memory accesses.

        Raises:
            ValueError: the job is another compiler's.
            CompileError: clang refuses the text.
        """
