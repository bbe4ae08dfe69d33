"""Silo's kernels in programs of jax: calls inside ``jax.jit``, ``vmap``, ``grad`` and ``jax.export``.

The names of this package are resolved on first use, and jax is imported at the first ``jax_call``.

>>> from silo.integrations import jax as seam
>>> seam.tested_versions()
('0.10', '0.12')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from silo.lazy_names import lazy_names

if TYPE_CHECKING:
    from silo.integrations.jax.call import jax_call
    from silo.integrations.jax.jax_programs import connect
    from silo.launch.jax_versions import tested_versions

__all__ = ["connect", "jax_call", "tested_versions"]

__getattr__ = lazy_names(
    globals(),
    {
        "connect": "silo.integrations.jax.jax_programs:connect",
        "jax_call": "silo.integrations.jax.call:jax_call",
        "tested_versions": "silo.launch.jax_versions:tested_versions",
    },
)
