"""The findings of ``silo doctor`` on Metal kernels."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

from silo.core.findings import Finding

__all__ = ["findings"]


def findings() -> Sequence[Finding]:
    """Returns a finding on MLX, whose arrays launches on a Mac accept beside torch's."""
    try:
        return (Finding("mlx", "ok", importlib.metadata.version("mlx")),)
    except importlib.metadata.PackageNotFoundError:
        return (Finding("mlx", "optional", "not installed", "only to pass MLX's arrays to Metal kernels"),)
