"""The kernels that a jax program can call: of this process, or of a bundle, with one interface."""

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
    from silo.core.expressions import Node
    from silo.core.protocols import Device
    from silo.core.signature import Effect, Signature
    from silo.core.values import JSON
    from silo.launch.arguments import SeenCall

__all__ = ["CalledCode", "Callee", "KernelHere", "PackedKernel", "callee_of"]


@frozen
class CalledCode:
    """The code that serves a call.

    ``packed`` is the bundle's description of the code's calls, and ``code`` its bytes; both None: the code is in this
    user's store.
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
        """The source location, for messages."""
        return self.kernel.location

    @property
    def signature(self) -> Signature:
        """The parameters as written."""
        return self.kernel.source.signature

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The parameters that a call gives."""
        return self.kernel.argument_names

    @property
    def grid(self) -> tuple[Node, ...] | None:
        """The declared grid."""
        return self.kernel.grid

    def completed(self, given: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments with those computed by the author's Python heuristics, which run at each call."""
        launcher = self.kernel.resolver.direct
        return launcher.complete((), given) if isinstance(launcher, HeuristicLauncher) else given

    def effects(self, call: SeenCall, device: Device, mutates: Collection[str] | None) -> dict[str, Effect]:
        """Returns the call's effect on each array. Raises as :func:`silo.integrations.call_effects.effects_of`."""
        variant, facts = self.kernel.resolver.lowered_on(call, device)
        return effects_of(self.kernel, variant.signature, facts, self.signature.names, mutates)

    def code(self, call: SeenCall, device: Device) -> CalledCode:
        """Returns the code that serves the call, compiled if needed."""
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
        """The bundle's name, for messages."""
        return self.kernel.bundle.name

    @property
    def signature(self) -> Signature:
        """The parameters as written."""
        return self.kernel.signature

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The parameters that a call gives."""
        return self.kernel.argument_names

    @property
    def grid(self) -> tuple[Node, ...] | None:
        """The declared grid."""
        return self.kernel.grid

    def completed(self, given: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments unchanged: a bundle computes values by expressions."""
        return given

    def effects(self, call: SeenCall, device: Device, mutates: Collection[str] | None) -> dict[str, Effect]:
        """Returns the call's effect on each array, as the bundle recorded it for the code that serves the call.

        Raises:
            ArgumentError: ``mutates`` names something other than arrays.
            NoVariantError: no code of the bundle serves it.
            SourceError: that code may write to memory outside of its arguments, and ``mutates`` is None.
        """
        return said_effects(self.name, self.location, self.kernel.choose(call, device).artifact, mutates)

    def code(self, call: SeenCall, device: Device) -> CalledCode:
        """Returns the bundle's code for the call, with consent.

        Raises:
            NoVariantError: no code of the bundle serves the call.
            TrustError: consent to its native code is missing.
        """
        one = self.kernel.choose(call, device)
        return CalledCode(one.artifact, self.kernel.variant_calls(one), self.kernel.code(one))


Callee: TypeAlias = "KernelHere | PackedKernel"


def callee_of(value: object) -> Callee | None:
    """Returns the kernel in the first argument of a call; None if it is not a kernel."""
    if isinstance(value, BundledKernel):
        return PackedKernel(value)
    kernel = kernel_of(value)
    if kernel is None:
        return None
    refuse_zeroing(kernel, "silo.jax_call")
    return KernelHere(kernel)
