"""Launchers to pass to Helion's kernels as ``_launcher=``: they compile and launch, launch a bundle's code, or record.

>>> from silo.integrations import helion
>>> helion.default_cute_launcher(object(), (0,), block=(32, 32))  # an empty grid launches nothing
"""

from __future__ import annotations

from silo.integrations.helion.call_notes import CallNotes, NotedCall
from silo.integrations.helion.helion_kernels import bundled_cute_launcher, default_cute_launcher
from silo.integrations.helion.helion_patching import install, installed, num_sm
from silo.integrations.helion.metal_launcher import default_metal_launcher
from silo.integrations.helion.pallas_launcher import default_pallas_launcher
from silo.integrations.helion.triton_launcher import default_launcher, launcher

__all__ = [
    "CallNotes",
    "NotedCall",
    "bundled_cute_launcher",
    "default_cute_launcher",
    "default_launcher",
    "default_metal_launcher",
    "default_pallas_launcher",
    "install",
    "installed",
    "launcher",
    "num_sm",
]
