"""What a program of jax calls: a kernel of this process, or one of a bundle. What both say is all that a call needs."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeAlias

from silo.building.loaded_kernels import HeuristicLauncher
from silo.building.zeroing import refuse_zeroing
from silo.frozen import frozen
from silo.integrations.call_effects import effects_of, said_effects
from silo.kernels.bundle_kernels import BundledKernel
from silo.kernels.kernel import Kernel, kernel_of
from silo.launch.runtime import VouchedCode

if TYPE_CHECKING:
    from silo.artifacts.artifact import Artifact
    from silo.core.nodes import Node
    from silo.core.protocols import Device
    from silo.core.signature import Effect, Signature
    from silo.core.values import JSON
    from silo.launch.arguments import SeenCall

__all__ = ["CalledCode", "Callee", "KernelHere", "PackedKernel", "callee_of"]


@frozen
class CalledCode:
    """The code that serves a call.

    ``packed`` is what the bundle that it is from says of its calls, and ``code`` is its bytes; both None: the store of
    this user has it.
    """

    artifact: Artifact
    packed: JSON = None
    code: VouchedCode | None = None


@frozen
class KernelHere:
    """A kernel that ``silo.kernel`` made in this process."""

    kernel: Kernel

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    @property
    def location(self) -> str:
        """Where it is from, for messages."""
        return self.kernel.location

    @property
    def signature(self) -> Signature:
        """Its parameters as written."""
        return self.kernel.source.signature

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Parameters that a call gives."""
        return self.kernel.argument_names

    @property
    def grid(self) -> tuple[Node, ...] | None:
        """The declared grid."""
        return self.kernel.grid

    def completed(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments with what functions of the author's make of them, which run at each call."""
        launcher = self.kernel.resolver.direct
        return launcher.complete((), given) if isinstance(launcher, HeuristicLauncher) else given

    def effects(self, call: SeenCall, device: Device, mutates: Collection[str] | None) -> dict[str, Effect]:
        """What such a call does to each array. Raises as :func:`silo.integrations.call_effects.effects_of`."""
        variant, facts = self.kernel.resolver.lowered_on(call, device)
        return effects_of(self.kernel, variant.signature, facts, self.signature.names, mutates)

    def code(self, call: SeenCall, device: Device) -> CalledCode:
        """The code for such a call, compiled if need be."""
        return CalledCode(self.kernel.resolver.compiled_on(call, device))


@frozen
class PackedKernel:
    """A kernel of a bundle that :func:`silo.load` opened."""

    kernel: BundledKernel

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    @property
    def location(self) -> str:
        """Where it is from, for messages."""
        return self.kernel.bundle.name

    @property
    def signature(self) -> Signature:
        """Its parameters as written."""
        return self.kernel.signature

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Parameters that a call gives."""
        return self.kernel.argument_names

    @property
    def grid(self) -> tuple[Node, ...] | None:
        """The declared grid."""
        return self.kernel.grid

    def completed(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments as they are: what a bundle computes it computes by expressions."""
        return given

    def effects(self, call: SeenCall, device: Device, mutates: Collection[str] | None) -> dict[str, Effect]:
        """What such a call does to each array, as the bundle says of the code that serves it.

        Raises:
            ArgumentError: ``mutates`` names something other than arrays.
            NoVariantError: no code of the bundle serves it.
            SourceError: that code may write to memory behind none of its arguments, and the caller does not say.
        """
        return said_effects(self.name, self.location, self.kernel.choose(call, device).artifact, mutates)

    def code(self, call: SeenCall, device: Device) -> CalledCode:
        """The bundle's code for such a call, with consent.

        Raises:
            NoVariantError: it has none.
            TrustError: nobody vouches for its native code.
        """
        one = self.kernel.choose(call, device)
        return CalledCode(one.artifact, self.kernel.variant_calls(one), self.kernel.code(one))


Callee: TypeAlias = "KernelHere | PackedKernel"


def callee_of(value: object) -> Callee | None:
    """What a call's first argument is; None: no kernel."""
    if isinstance(value, BundledKernel):
        return PackedKernel(value)
    known = kernel_of(value)
    if known is None:
        return None
    refuse_zeroing(known, "silo.jax_call")
    return KernelHere(known)
