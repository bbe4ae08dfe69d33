"""The driver that Triton discovers: inactive if a GPU driver is active, if ``SILO_TRITON=off``, or if Silo fails."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Triton has no types, and its discovery requires exactly one concrete subclass of this class in the module.
_Base: Any = import_module("triton.backends.driver").DriverBase

_failure: str | None = None  # the reason why Silo cannot be used; it is logged when Triton first calls this driver
_logged = False


def ask(question: str) -> Any:  # noqa: ANN401  # None where it failed
    """Calls the function of :mod:`.activation` that ``question`` names; returns its result, or None if it fails.

    Catches every failure of Silo, so that Triton still finds the other drivers.
    """
    global _failure  # noqa: PLW0603  # the last one is kept
    try:
        activation: Any = import_module("silo.kinds.triton.programs.backend.activation")
        return getattr(activation, question)()
    except Exception as error:  # noqa: BLE001  # see above
        _failure = f"{type(error).__name__}: {error}"
        return None


def require() -> None:
    """Calls :func:`.activation.require`; raises the reason why Silo cannot be used here."""
    import_module("silo.kinds.triton.programs.backend.activation").require()


def _log_once() -> None:
    global _logged  # noqa: PLW0603  # once a process
    if _failure is None or _logged:
        return
    _logged = True
    import logging  # noqa: PLC0415  # nothing is wrong as a rule

    logging.getLogger("silo").warning(
        "Silo's Triton backend is inactive, so Triton kernels do not run on the CPU: %s", _failure
    )


class CpuDriver(_Base):
    """Runs Triton kernels on host memory: torch's CPU tensors, numpy arrays, anything with ``data_ptr``.

    It is active if no other driver is, and always with ``SILO_TRITON=cpu``.
    """

    def __init__(self) -> None:
        _Base.__init__(self)
        launching: Any = import_module("silo.kinds.triton.programs.backend.launching")
        self._device: Any = import_module("silo.kinds.triton.programs.backend.launching")
        self.launcher_cls: Any = launching.CpuLauncher
        self.utils: Any = launching.CpuUtils()
        ask("complete_keys")

    @classmethod
    def is_active(cls) -> bool:
        """Whether Triton should use this driver. Calls the other drivers; never raises."""
        active = bool(ask("is_active"))
        _log_once()
        return active

    @classmethod
    def explain(cls) -> Any:  # noqa: ANN401  # nothing of Silo is imported here
        """Whether the driver is active and why, as a :class:`silo.core.decisions.Decision`."""
        answer = ask("decide")
        return import_module("silo.core.decisions").Rejected(_failure) if answer is None else answer

    def get_current_target(self) -> Any:  # noqa: ANN401
        """Triton's target for this machine's highest portable level."""
        return self._device.current_target()

    def get_current_device(self) -> int:
        """Returns -1: Triton keeps compiled code by device number, and no GPU has this one."""
        return self._device.DEVICE

    def set_current_device(self, device: int) -> None:
        """Does nothing: there is only one device."""

    def get_current_stream(self, device: int | None = None) -> int:  # noqa: ARG002
        """Returns 0, the only stream: a launch returns when the kernel is done."""
        return 0

    def get_active_torch_device(self) -> Any:  # noqa: ANN401
        """Returns ``torch.device("cpu")``."""
        return import_module("torch").device("cpu")

    def get_device_interface(self) -> Any:  # noqa: ANN401
        """Events and synchronisation like in ``torch.cuda``, based on the wall clock."""
        return self._device.CpuInterface

    def get_benchmarker(self) -> Any:  # noqa: ANN401
        """Triton's own ``do_bench``, which uses the next two methods and the events of :meth:`get_device_interface`."""
        return import_module("triton.testing").do_bench

    def get_empty_cache_for_benchmark(self) -> None:
        """Returns None: kernels are timed with warm caches, as in Silo's own measurements on a CPU."""

    def clear_cache(self, cache: None) -> None:
        """Does nothing; see :meth:`get_empty_cache_for_benchmark`."""

    def map_python_to_cpp_type(self, ty: str) -> str:
        """The C type for one of Triton's parameter types, for the target that this thread last compiled for."""
        compiler: Any = import_module("silo.kinds.triton.programs.backend.compiler")
        return self._device.c_type(ty, getattr(compiler.last_target, "kind", "cpu"))


# A later version of Triton may add abstract methods, and a class that cannot be instantiated would make `import triton`
# fail.
CpuDriver.__abstractmethods__ = frozenset()

ask("claim")
ask("begin_checks")
ask("begin_records")
ask("begin_acceleration")
