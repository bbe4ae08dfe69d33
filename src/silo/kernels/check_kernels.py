"""Kernels that check themselves while they run, on the CPU: ``silo.check`` of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from silo.core.protocols import MOST_STEPS, CheckLimits
from silo.errors import ArgumentError
from silo.kernels.checking_launchers import CheckingBundle, CheckingKernel, CheckingLauncher
from silo.kernels.kernel import kernel as wrap
from silo.kernels.kernel import kernel_of

__all__ = ["CheckingLauncher", "check"]


def check(
    kernel: object,
    *,
    nan: bool = False,
    uninitialized: Sequence[str] = (),
    memory: Sequence[object] = (),
    steps: int = MOST_STEPS,
    bounds: Literal["storage", "view"] = "storage",
) -> CheckingLauncher:
    """Returns a launcher that runs ``kernel`` in checking mode; ``silo.check`` documents the checks."""
    if bounds not in ("storage", "view"):
        raise ArgumentError(f"bounds is 'storage' or 'view', not {bounds!r}")
    limits = CheckLimits(nan, tuple(uninitialized), tuple(memory), steps, views=bounds == "view")
    silo_kernel = kernel_of(kernel)
    if silo_kernel is None:
        from silo.kernels.bundle_kernels import BundledKernel  # noqa: PLC0415  # most programs check no bundles

        if isinstance(kernel, BundledKernel):
            return CheckingBundle(kernel, limits)
        silo_kernel = kernel_of(wrap(kernel))
    assert silo_kernel is not None
    return CheckingKernel(silo_kernel, silo_kernel.resolver, limits)
