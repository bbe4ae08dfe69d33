"""The source plug-in ``pallas``: bodies of Pallas kernels, made by ``silo.pallas``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.kinds.pallas.front import pallas_installation as installation
from silo.sources.declaration import Declaration, plain_callable
from silo.sources.kernel_source import KernelSource

if TYPE_CHECKING:
    from silo.sources.installations import Finding

__all__ = ["PallasKind"]


class PallasKind:
    """Reads the definitions made by ``silo.pallas`` (:func:`silo.kinds.pallas.front.pallas_definition.pallas`)."""

    advice = "make one of a Pallas body with silo.pallas(body, args=[silo.ArgSpec(...), ...])"
    requirement = "kernel-silo[pallas]"
    packages = installation.PACKAGES
    example_targets = ("tpu:v5e",)

    @property
    def define(self) -> Callable[..., object]:
        """The function that users call as ``silo.pallas``."""
        from silo.kinds.pallas.front.pallas_definition import pallas  # noqa: PLC0415  # few have Pallas kernels

        return pallas

    def reads(self, value: object) -> Decision:
        """Accepts definitions made by ``silo.pallas``. Imports nothing."""
        if isinstance(value, Declaration) and value.source.kind == "pallas":
            return Accepted("a Pallas kernel")
        return Rejected("not a Pallas kernel, which silo.pallas(...) makes")

    def read(self, value: object) -> Declaration:
        """Returns the definition itself."""
        assert isinstance(value, Declaration)
        return value

    def wrap(self, source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Returns an object that only Python code can call: no other kernel calls a Pallas kernel."""
        return plain_callable(source, launcher, members)

    def versions(self) -> Mapping[str, str]:
        """Returns the versions of jax and its requirements, if they are installed."""
        return installation.versions()

    def findings(self) -> Sequence[Finding]:
        """Returns findings on the installed jax, and on the compiler for TPUs."""
        from silo.kinds.pallas.front.pallas_installation import findings  # noqa: PLC0415  # for ``silo doctor`` alone

        return findings()
