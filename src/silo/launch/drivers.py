"""GPU drivers of this process: opened when first needed, never before."""

from __future__ import annotations

import sys

from silo.errors import DeviceError
from silo.launch import native
from silo.settings import settings

__all__ = ["KINDS", "open_driver", "open_drivers"]

KINDS = ("cuda", "hip")


def open_driver(kind: str) -> int:
    """Open the driver of ``cuda`` or ``hip``; how many devices it has.

    Raises:
        DeviceError: why it is not here.
    """
    return native.gpu_open(kind, settings().cuda_library if kind == "cuda" else settings().hip_library)


def open_drivers() -> None:
    """Open what there is. The native module calls this once, for a call that may concern a GPU."""
    for kind in KINDS:
        try:
            open_driver(kind)
        except DeviceError as error:
            _note(kind, error)


def _note(kind: str, error: DeviceError) -> None:
    if "logging" in sys.modules:  # else nobody can have asked for this message, and the import takes milliseconds
        import logging  # noqa: PLC0415  # see above

        logging.getLogger("silo").debug("no %s: %s", kind, error)


native.set_driver_opener(open_drivers)
