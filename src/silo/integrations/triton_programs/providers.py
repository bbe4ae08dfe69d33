"""Who is asked for the code of a launch before Triton compiles it, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from silo.integrations.triton_programs.kernels import VariantProvider

__all__ = ["PROVIDERS"]

PROVIDERS: list[VariantProvider] = []
