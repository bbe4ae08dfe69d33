"""``silo.check``: kernels that check themselves while they run, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from silo.core.check_limits import MOST_STEPS, CheckLimits
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
    """A launcher that runs ``kernel`` in checking mode: called like the kernel, ``check(k)[grid](...)``.

    A clean launch leaves the arguments as an ordinary launch does. After a finding they hold their former values. The
    checks find: accesses out of bounds or misaligned, reads of memory that nothing was written to, values of masked-off
    lanes that count, races between programs, two values that one store puts at one address, indices of ``tl.gather``
    outside its tile, 32-bit arithmetic that wraps on the way to an address or a mask, integer division by zero,
    promises that do not hold (``tl.multiple_of``, ``tl.assume``), failed ``tl.device_assert``, loops that do not end.
    Of a Metal kernel also: races between threads of a threadgroup, barriers that not all threads reach, operations
    between lanes in divergent flow, too much threadgroup memory and pointers of the wrong address space. Of a Pallas
    kernel: races of copies, waits for semaphores that do not end, blocks of an output that programs come back to, and
    results that depend on the order of programs along a parallel axis.

    Args:
        kernel: a kernel of ``silo.kernel`` or of a bundle, or a ``@triton.jit`` kernel.
        nan: also find operations that compute a NaN from numbers, and whose NaN reaches a result.
        uninitialized: names of arguments that hold nothing yet, such as a new output.
        memory: further arrays that the kernel reaches through addresses in memory or in integers.
        steps: turns of loops and accesses that one program may take.
        bounds: what an access through an argument may reach. ``"storage"``: all memory that the array is a view of
            (torch's storage, numpy's base array). ``"view"``: the elements of the array itself; of a Metal kernel's
            array everything from its first to its last element.

    Raises:
        ArgumentError: ``bounds`` is another word.

    Raises (when called):
        CheckError: the first thing that is wrong: line, program, index and argument.
        ArgumentError: an array that is not in host memory.
    """
    if bounds not in ("storage", "view"):
        raise ArgumentError(f"bounds is 'storage' or 'view', not {bounds!r}")
    limits = CheckLimits(nan, tuple(uninitialized), tuple(memory), steps, views=bounds == "view")
    known = kernel_of(kernel)
    if known is None:
        from silo.kernels.bundle_kernels import BundledKernel  # noqa: PLC0415  # most programs check no bundles

        if isinstance(kernel, BundledKernel):
            return CheckingBundle(kernel, limits)
        known = kernel_of(wrap(kernel))
    assert known is not None
    return CheckingKernel(known, known.resolver, limits)
