"""``torch.compile`` with Silo: Triton kernels for CPU tensors, and decisions and code of kernels for GPUs.

>>> from silo.integrations import inductor
>>> with inductor.enable() as enabled:  # doctest: +SKIP
...     compiled = torch.compile(model)
...     compiled(x)

For CPU tensors, ``enable()`` makes Inductor generate Triton kernels (``cpu_backend="triton"``); Silo chooses their
blocks, compiles the kernels, and launches them without Triton's launcher. With ``enable("cuda")`` Inductor generates
its GPU kernels as always; Silo keeps the configs that torch measured for the kernels, launches the kernels, and adds
them to a recording.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from silo.lazy_names import lazy_names

if TYPE_CHECKING:
    from silo.integrations.inductor.gpu_report import GraphKernel, kernels
    from silo.integrations.inductor.inductor_patching import Enabled, enable, state
    from silo.launch.torch_versions import inductor_versions as tested_versions

__all__ = ["Enabled", "GraphKernel", "enable", "kernels", "state", "tested_versions"]

__getattr__ = lazy_names(
    globals(),
    {
        "Enabled": "silo.integrations.inductor.inductor_patching:Enabled",
        "GraphKernel": "silo.integrations.inductor.gpu_report:GraphKernel",
        "kernels": "silo.integrations.inductor.gpu_report:kernels",
        "enable": "silo.integrations.inductor.inductor_patching:enable",
        "state": "silo.integrations.inductor.inductor_patching:state",
        "tested_versions": "silo.launch.torch_versions:inductor_versions",
    },
)
