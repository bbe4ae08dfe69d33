"""Silo's kernels as operators of torch, under ``torch.compile``, ``torch.export`` and autograd.

The names of this package are resolved on first use: ``silo.kernel`` imports a small part of it, and most programs need
no more.

>>> from silo.integrations import torch as seam
>>> seam.tested_versions()
('2.13', '2.14', '2.15')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from silo.lazy_names import lazy_names

if TYPE_CHECKING:
    from silo.integrations.torch.import_hook import watch as connect
    from silo.integrations.torch.operator import TorchOp, torch_op
    from silo.launch.torch_versions import tested_versions

__all__ = ["TorchOp", "connect", "tested_versions", "torch_op"]

__getattr__ = lazy_names(
    globals(),
    {
        "TorchOp": "silo.integrations.torch.operator:TorchOp",
        "connect": "silo.integrations.torch.import_hook:watch",
        "tested_versions": "silo.launch.torch_versions:tested_versions",
        "torch_op": "silo.integrations.torch.operator:torch_op",
    },
)
