"""The driver of the name ``cpu``: torch makes one and passes it to Triton when kernels are to run on the CPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Triton's discovery requires one concrete subclass of its base in the module, so the base is not a name of it.
_plugin: Any = import_module("silo.kinds.triton.programs.backend.driver")


class NamedCpuDriver(_plugin.CpuDriver):
    """As Silo's own driver, which is active if no other driver is.

    This one is active if ``cpu`` is requested by name.
    """

    def __init__(self) -> None:
        _plugin.require()
        _plugin.CpuDriver.__init__(self)

    @classmethod
    def is_active(cls) -> bool:
        """Whether ``TRITON_DEFAULT_BACKEND`` names it: Triton tries no other driver then."""
        return bool(_plugin.ask("is_chosen_as_cpu"))


# A later Triton may require more methods: a class that Triton cannot make an instance of would fail `import triton`.
NamedCpuDriver.__abstractmethods__ = frozenset()
