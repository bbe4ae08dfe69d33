"""``torch.compile`` for CPU tensors through Triton and Silo, in the place of Inductor's C++ backend.

>>> from silo.integrations import inductor
>>> with inductor.enable() as enabled:  # doctest: +SKIP
...     compiled = torch.compile(model)
...     compiled(x)

Inductor generates Triton kernels (``cpu_backend="triton"``); Silo chooses their blocks for a CPU, compiles them, and
launches them without Triton's launcher.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from silo.integrations.inductor.switch import Enabled, enable, state
    from silo.launch.torch_versions import inductor_versions as tested_versions

__all__ = ["Enabled", "enable", "state", "tested_versions"]

_HOMES = {
    "Enabled": f"{__name__}.switch",
    "enable": f"{__name__}.switch",
    "state": f"{__name__}.switch",
    "tested_versions": "silo.launch.torch_versions",
}
_NAMES = {"tested_versions": "inductor_versions"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), _NAMES.get(name, name))
    return value
