"""Silo's kernels in programs of jax: calls inside ``jax.jit``, ``vmap``, ``grad`` and ``jax.export``.

Names are resolved on first use; jax is imported when a kernel is first called so.

>>> from silo.integrations import jax as seam
>>> seam.tested_versions()
('0.10',)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from silo.integrations.jax.call import jax_call
    from silo.integrations.jax.programs import connect
    from silo.launch.jax_versions import tested_versions

__all__ = ["connect", "jax_call", "tested_versions"]

_HOMES = {
    "connect": f"{__name__}.programs",
    "jax_call": f"{__name__}.call",
    "tested_versions": "silo.launch.jax_versions",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
