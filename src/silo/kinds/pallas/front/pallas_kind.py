"""The source plug-in ``pallas``: bodies of Pallas kernels, made by ``silo.pallas``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.kinds.pallas.front import pallas_installation as installation
from silo.sources.callables import plain_callable
from silo.sources.declaration import Declaration
from silo.sources.kernel_source import KernelSource

if TYPE_CHECKING:
    from silo.core.findings import Finding

__all__ = ["PallasKind"]


class PallasKind:
    """Reads what :func:`silo.kinds.pallas.front.pallas_definition.pallas` makes, and takes it from ``silo.pallas``."""

    advice = "make one of a Pallas body with silo.pallas(body, args=[silo.ArgSpec(...), ...])"
    requirement = "kernel-silo[pallas]"
    packages = installation.PACKAGES
    example_targets = ("tpu:v5e",)

    @property
    def define(self) -> Callable[..., object]:
        """What ``silo.pallas`` calls."""
        from silo.kinds.pallas.front.pallas_definition import pallas  # noqa: PLC0415  # most programs have no such kernels

        return pallas

    def reads(self, value: object) -> Decision:
        """A definition of a Pallas kernel. Imports nothing."""
        if isinstance(value, Declaration) and value.source.kind == "pallas":
            return Accepted("a Pallas kernel")
        return Rejected("not a Pallas kernel, which silo.pallas(...) makes")

    def read(self, value: object) -> Declaration:
        """The definition itself."""
        assert isinstance(value, Declaration)
        return value

    def wrap(self, source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Nothing but Python calls it."""
        return plain_callable(source, launcher, members)

    def versions(self) -> Mapping[str, str]:
        """Those of jax and what it needs, where they are installed."""
        return installation.versions()

    def findings(self) -> Sequence[Finding]:
        """Whether the jax that is installed can be used, and whether the compiler for TPUs is here."""
        from silo.kinds.pallas.front.pallas_installation import findings  # noqa: PLC0415  # for ``silo doctor`` alone

        return findings()
