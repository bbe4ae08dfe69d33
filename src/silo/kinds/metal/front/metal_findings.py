"""What ``silo doctor`` says of Metal kernels."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

from silo.core.findings import Finding

__all__ = ["findings"]


def findings() -> Sequence[Finding]:
    """Whether MLX is there, whose arrays a Mac's launches take beside torch's."""
    try:
        return (Finding("mlx", "ok", importlib.metadata.version("mlx")),)
    except importlib.metadata.PackageNotFoundError:
        return (Finding("mlx", "optional", "not installed", "only to pass MLX's arrays to Metal kernels"),)
