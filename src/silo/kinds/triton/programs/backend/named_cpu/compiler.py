"""The compiler of the name ``cpu``: Silo's, which here answers for no target."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Triton's discovery requires one concrete subclass of its base in the module, so the base is not a name of it.
_plugin: Any = import_module("silo.kinds.triton.programs.backend.compiler")


class NamedCpuBackend(_plugin.CpuBackend):
    """Like Silo's backend, which Triton finds for every CPU; this one serves no target, as Triton refuses two."""

    @staticmethod
    def supports_target(target: Any) -> bool:  # noqa: ANN401, ARG004  # Triton's GPUTarget
        """False for every target."""
        return False


# A later Triton may require more methods: a class that Triton cannot make an instance of would fail `import triton`.
NamedCpuBackend.__abstractmethods__ = frozenset()
