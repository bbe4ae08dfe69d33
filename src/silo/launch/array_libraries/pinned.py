"""Page-locked host memory for copies of a device's arrays that do not fit into the device's own memory."""

from __future__ import annotations

import logging

from silo.core.decisions import Rejected
from silo.errors import DeviceError
from silo.launch.buffers import split_device
from silo.launch.native import PinnedMemory, available_memory
from silo.tuner.measure import pin_fits

__all__ = ["pinned", "tell_where"]

_log = logging.getLogger("silo")


def pinned(size: int, device: str) -> PinnedMemory | Rejected:
    """Allocates ``size`` bytes of page-locked host memory for copies to a GPU, or returns why that is impossible."""
    decision = pin_fits(size, available_memory())
    if isinstance(decision, Rejected):
        return decision
    try:
        return PinnedMemory(size, *split_device(device))
    except DeviceError as error:
        return Rejected(f"that memory is pageable, which is slower still: {error}")


def tell_where(device: str, fits: object, pin: object) -> None:
    """Logs why the copy of an array is not on the array's own device, and perhaps why not in page-locked memory either.

    ``fits`` is the decision whether the copy fits on the device, and ``pin`` is the result of :func:`pinned`. Each of
    them may be a ``Rejected``, which has the reason.
    """
    reasons = [decision.reason for decision in (fits, pin) if isinstance(decision, Rejected)]
    _log.info("an array on %s: %s", device, "; ".join(reasons))
