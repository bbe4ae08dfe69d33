"""The source plug-in ``metal``: kernels in Metal Shading Language, made by ``silo.metal``."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.sources.declaration import Declaration, plain_callable
from silo.sources.installations import Finding
from silo.sources.kernel_source import KernelSource

__all__ = ["MetalKind", "findings"]


# ---- The source plug-in ----


class MetalKind:
    """Reads the definitions made by ``silo.metal`` (:func:`silo.kinds.metal.front.metal_source.metal`)."""

    advice = "make one of a text in Metal Shading Language with silo.metal(text, group_size=...)"

    @property
    def define(self) -> Callable[..., object]:
        """The function that users call as ``silo.metal``."""
        from silo.kinds.metal.front.metal_source import metal  # noqa: PLC0415  # few programs have Metal kernels

        return metal

    @property
    def example_targets(self) -> tuple[str, ...]:
        """The targets that a complete installation compiles for."""
        return ("metal:3.1",)

    def findings(self) -> Sequence[Finding]:
        """Returns the finding of ``silo doctor`` about MLX: its version, or that it is not installed."""
        return findings()

    @property
    def selftest(self) -> str:
        """The function that ``silo selftest metal`` runs, as ``module:function``."""
        return "silo.kinds.metal.programs.metal_selftest:selftest"

    def reads(self, value: object) -> Decision:
        """Accepts definitions made by ``silo.metal``."""
        if isinstance(value, Declaration) and value.source.kind == "metal":
            return Accepted("a Metal kernel")
        return Rejected("not a Metal kernel, which silo.metal(...) makes")

    def read(self, value: object) -> Declaration:
        """Returns the definition itself."""
        assert isinstance(value, Declaration)
        return value

    def wrap(self, source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Returns an object that only Python code can call: no other kernel calls a Metal kernel."""
        return plain_callable(source, launcher, members)


# ---- Findings for silo doctor ----


def findings() -> Sequence[Finding]:
    """Returns a finding about MLX: on a Mac, launches accept MLX's arrays as well as torch's."""
    try:
        return (Finding("mlx", "ok", importlib.metadata.version("mlx")),)
    except importlib.metadata.PackageNotFoundError:
        return (Finding("mlx", "optional", "not installed", "only to pass MLX's arrays to Metal kernels"),)
