"""The compiler backend named ``cpu``: it is Silo's, but accepts no target."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Triton's discovery requires exactly one concrete subclass of its base class in a module, so this module must not bind
# further classes to names.
_plugin: Any = import_module("silo.kinds.triton.programs.backend.compiler")


class NamedCpuBackend(_plugin.CpuBackend):
    """Silo's backend under the name ``cpu``; it supports no target.

    Triton raises an error if two backends support one target, and it finds Silo's own backend for every CPU.
    """

    @staticmethod
    def supports_target(target: Any) -> bool:  # noqa: ANN401, ARG004  # Triton's GPUTarget
        """Returns False for every target."""
        return False


# A later version of Triton may add abstract methods, and a class that cannot be instantiated would make `import triton`
# fail.
NamedCpuBackend.__abstractmethods__ = frozenset()
