"""Providers: other sources of compiled variants than Triton, tried before it; and their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from silo.frozen import frozen

if TYPE_CHECKING:  # read when a program starts, before it launches anything
    from silo.core.launch_info import LaunchInfo
    from silo.core.protocols import Device
    from silo.core.signature import Signature
    from silo.core.specialization import Specialization
    from silo.core.target import Target
    from silo.kinds.triton.front.adapter import CompiledProgram
    from silo.kinds.triton.front.triton_source import TritonSource
    from silo.launch.arguments import SeenCall
    from silo.launch.native import Binding

__all__ = ["PROVIDERS", "LaunchedKernel", "ProgramVariant", "Provided", "VariantProvider"]


class LaunchedKernel(Protocol):
    """A kernel of a program as providers see it; :class:`.kernels.ProgramKernel` is one."""

    name: str
    location: str

    @property
    def function(self) -> Any:  # noqa: ANN401  # Triton's JITFunction
        """Triton's object; None after its end."""
        ...

    @property
    def source(self) -> TritonSource:
        """The kernel as a source. Raises SourceError: Silo does not read kernels of this kind."""
        ...

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the source."""
        ...


@frozen
class ProgramVariant:
    """One variant that launches of a program used.

    ``signature`` and ``specialization`` are Silo's form of the call's facts, None if Silo cannot express them;
    ``options`` are the compile options that the call gave. ``program`` is Triton's compiled kernel.
    """

    kernel: LaunchedKernel
    call: SeenCall
    options: Mapping[str, object]
    program: CompiledProgram
    launch: LaunchInfo
    target: Target
    device: Device
    signature: Signature | None = None
    specialization: Specialization | None = None


@frozen
class Provided:
    """The code of a provider.

    The launch returns the binding's ``tag``. If one of ``globals`` (values and their dictionaries, by name and the
    dictionary's id) has changed, a later launch raises.
    """

    binding: Binding
    globals: Mapping[tuple[str, int], tuple[object, dict[str, Any]]]


class VariantProvider(Protocol):
    """Another source of compiled variants than Triton, tried before it: a bundle."""

    def provide(self, kernel: LaunchedKernel, call: SeenCall) -> Provided | None:
        """The variant for calls like this one; None: this provider lacks one, and the next is called, at last Triton.

        Not called if a hook of the program would observe the compile. Its exceptions reach the caller of the kernel.
        """
        ...

    def compiled(self, variant: ProgramVariant) -> None:
        """Triton compiled a variant, or took it from its cache, and launched it once."""
        ...


PROVIDERS: list[VariantProvider] = []
"""Who is asked for the code of a launch before Triton compiles it, in order."""
