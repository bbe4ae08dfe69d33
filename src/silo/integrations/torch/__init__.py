"""Silo's kernels as citizens of torch: operators under ``torch.compile``, ``torch.export`` and autograd.

Names are resolved on first use: ``silo.kernel`` imports a part of this package, and most programs nothing else of it.

>>> from silo.integrations import torch as seam
>>> seam.tested_versions()
('2.13',)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from silo.integrations.torch.arrival import watch as connect
    from silo.integrations.torch.operator import TorchOp, torch_op
    from silo.launch.torch_versions import tested_versions

__all__ = ["TorchOp", "connect", "tested_versions", "torch_op"]

_HOMES = {
    "TorchOp": f"{__name__}.operator",
    "connect": f"{__name__}.arrival",
    "tested_versions": "silo.launch.torch_versions",
    "torch_op": f"{__name__}.operator",
}
_NAMES = {"connect": "watch"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), _NAMES.get(name, name))
    return value
