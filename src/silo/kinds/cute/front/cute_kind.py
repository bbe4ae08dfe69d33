"""The source plug-in ``cute``: kernels written in the CuTe DSL, made by ``silo.cute``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.kinds.cute.front import cute_installation as installation
from silo.sources.declaration import Declaration, plain_callable
from silo.sources.kernel_source import KernelSource

if TYPE_CHECKING:
    from silo.sources.installations import Finding

__all__ = ["CuteKind"]


class CuteKind:
    """Reads the definitions made by ``silo.cute`` (:func:`silo.kinds.cute.front.cute_source.cute`)."""

    advice = "make one of a @cute.kernel or a @cute.jit function with silo.cute(...)"
    requirement = "kernel-silo[cute]"
    packages = (installation.PACKAGE, installation.FFI_PACKAGE, "cutlass", "tvm_ffi")
    example_targets = ("cuda:sm_90a",)

    @property
    def define(self) -> Callable[..., object]:
        """The function that users call as ``silo.cute``."""
        from silo.kinds.cute.front.cute_source import cute  # noqa: PLC0415  # few programs have CuTe kernels

        return cute

    def reads(self, value: object) -> Decision:
        """Accepts definitions made by ``silo.cute``. Imports nothing."""
        if isinstance(value, Declaration) and value.source.kind == "cute":
            return Accepted("a CuTe DSL kernel")
        if installation.decorated_as(value) is not None:
            return Rejected(
                "a function of the CuTe DSL, whose launch is not known yet: silo.cute(function, signature=..., "
                "block=..., grid=...) makes a kernel of it"
            )
        return Rejected("not a CuTe DSL kernel, which silo.cute(...) makes")

    def read(self, value: object) -> Declaration:
        """Returns the definition itself."""
        assert isinstance(value, Declaration)
        return value

    def wrap(self, source: KernelSource, launcher: Callable[[], Any], members: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Returns an object that only Python code can call: no other kernel calls a CuTe kernel."""
        return plain_callable(source, launcher, members)

    def versions(self) -> Mapping[str, str]:
        """Returns the DSL's versions, if it is installed."""
        return installation.versions()

    def findings(self) -> Sequence[Finding]:
        """Returns findings on the CUDA versions of the DSL's libraries, and on packages needed by ``host="dsl"``."""
        from silo.kinds.cute.front.cute_installation import findings  # noqa: PLC0415  # for ``silo doctor`` alone

        return findings()
