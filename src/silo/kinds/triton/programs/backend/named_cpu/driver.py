"""The driver named ``cpu``: torch creates it and passes it to Triton when kernels should run on the CPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Triton's discovery requires exactly one concrete subclass of its base class in the module, so the base class is not
# imported by name.
_plugin: Any = import_module("silo.kinds.triton.programs.backend.driver")


class NamedCpuDriver(_plugin.CpuDriver):
    """Like Silo's own driver, but active only if ``cpu`` is requested by name.

    Silo's own driver is active if no other driver is.
    """

    def __init__(self) -> None:
        _plugin.require()
        _plugin.CpuDriver.__init__(self)

    @classmethod
    def is_active(cls) -> bool:
        """Whether ``TRITON_DEFAULT_BACKEND`` names this driver; Triton then tries no other driver."""
        return bool(_plugin.ask("is_chosen_as_cpu"))


# A later version of Triton may add abstract methods, and a class that cannot be instantiated would make `import triton`
# fail.
NamedCpuDriver.__abstractmethods__ = frozenset()
