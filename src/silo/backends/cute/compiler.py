"""CuTe DSL kernels for NVIDIA GPUs: the DSL's front end here, its back end in a worker, complete launch info."""

from __future__ import annotations

from silo.backends.cute.declaration import CUTE
from silo.core.code_facts import Lowered
from silo.core.compiled import Compiled
from silo.core.decisions import Decision
from silo.core.protocols import Source
from silo.core.target import Target
from silo.core.variant import CompileJob, Variant
from silo.errors import ToolchainError

__all__ = ["CuteCompiler"]

_SOON = "the CuTe compiler is not finished"


class CuteCompiler:
    """The plug-in ``cute``: source kind ``cute``, targets ``cuda:*``. Needs no GPU, no driver and no toolkit."""

    declaration = CUTE

    def identity(self, target: Target) -> str:
        """What decides the bytes besides the variant: the DSL, its CUDA toolkit, Silo's code round them."""
        del target
        raise ToolchainError(_SOON)

    def accepts(self, source_kind: str, target: Target) -> Decision:
        """CuTe sources, for an arch that the DSL knows, where it is installed."""
        return self.declaration.takes(source_kind, target)

    def artifact_target(self, target: Target) -> Target:
        """The same: the DSL compiles for the form that it is given."""
        return target

    def lower(self, source: Source, variant: Variant) -> Lowered:
        """The DSL's front end: traces the wrapper of the source under the front end's lock."""
        del source, variant
        raise ToolchainError(_SOON)

    def compile(self, job: CompileJob) -> Compiled:
        """The DSL's back end; no source of the user's is read or imported."""
        del job
        raise ToolchainError(_SOON)
