"""Decides whether Triton runs kernels on the CPU through Silo in this process."""

from __future__ import annotations

import re
import sys
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import DeviceError, SiloError
from silo.settings import accelerate_wanted, checks_wanted, records_wanted, settings, triton_default, triton_mode

__all__ = [
    "begin_acceleration",
    "begin_checks",
    "begin_records",
    "claim",
    "complete_keys",
    "decide",
    "is_active",
    "is_chosen_as_cpu",
    "require",
]

# The name of Silo's own backend among Triton's backends; a second name, ``cpu``, exists for torch.
NAME = "silo"
_OWN_PACKAGE = __name__.rpartition(".")[0]

_asking = False


def is_active() -> bool:
    """Whether Triton should use Silo's driver; see :func:`decide`."""
    return bool(decide())


def decide() -> Decision:
    """Accepts if ``SILO_TRITON=cpu``, or if the variable is not ``off`` and no other driver of Triton is active.

    Raises:
        SiloError: Silo cannot be used here; the message holds the reason.
    """
    mode = triton_mode()
    if mode == "off":
        return Rejected("switched off by SILO_TRITON")
    if mode == "auto" and (other := _another_active()) is not None:
        return Rejected(f"kernels go to Triton's driver {other}; SILO_TRITON=cpu would send them to the CPU")
    _require()
    return Accepted("by SILO_TRITON" if mode == "cpu" else "no other driver of Triton is active")


def is_chosen_as_cpu() -> bool:
    """Whether ``TRITON_DEFAULT_BACKEND=cpu`` is set and Silo can be used. Raises the errors of :func:`decide`."""
    return _triton_chooses_by_name() and triton_default() == "cpu" and is_active()


def _triton_chooses_by_name() -> bool:
    """Whether Triton reads ``TRITON_DEFAULT_BACKEND``, as 3.7 and later do.

    Earlier versions require a single active driver.
    """
    version = str(getattr(sys.modules.get("triton"), "__version__", ""))
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) >= (3, 7)


def require() -> None:
    """Raises an error unless Silo can serve a program that chose its driver by name.

    Raises:
        DeviceError: ``SILO_TRITON=off``.
        SiloError: Silo cannot be used here; the message holds the reason.
    """
    if triton_mode() == "off":
        raise DeviceError(
            "a program asked Triton for the backend 'cpu', which is Silo's, and SILO_TRITON=off switches it off: unset "
            "SILO_TRITON, or let the program compile for the CPU without Triton (torch: cpu_backend='cpp')"
        )
    _require()


def claim() -> bool:
    """With ``SILO_TRITON=cpu``: makes every other driver inactive, before Triton calls them; returns whether it did.

    Triton requires exactly one active driver, and calls the drivers in an order of its own.
    """
    if triton_mode() != "cpu":
        return False
    from importlib import import_module  # noqa: PLC0415  # with `import triton`, for the few who set the variable
    from importlib.metadata import entry_points  # noqa: PLC0415

    base = import_module("triton.backends.driver").DriverBase
    for entry in entry_points(group="triton.backends"):
        if entry.value.startswith(_OWN_PACKAGE):
            continue
        for member in vars(import_module(f"{entry.value}.driver")).values():
            if isinstance(member, type) and issubclass(member, base) and "is_active" in vars(member):
                driver: Any = member
                driver.is_active = staticmethod(_inactive)
    return True


def complete_keys() -> bool:
    """Makes Triton's file cache distinguish kernels that read different constants as attributes (helper.CONST).

    Returns True, so that the caller can tell success: it calls through :func:`.driver.ask`, which returns None for an
    error.
    """
    from silo.kinds.triton.front import adapter  # noqa: PLC0415  # with `import triton`, where nobody may launch on a CPU
    from silo.kinds.triton.front.triton_fingerprint import read_attributes  # noqa: PLC0415  # as above

    adapter.complete_keys(read_attributes)
    return True


def begin_acceleration() -> bool:
    """With ``SILO_ACCELERATE=1``: lets Silo serve this program's launches, from the end of ``import triton`` on.

    Returns whether the setting is on.
    """
    if not accelerate_wanted():
        return False
    import logging  # noqa: PLC0415  # as above

    from silo.core.plugins import load_place  # noqa: PLC0415

    try:
        begin: Any = load_place("silo.kinds.triton.programs.triton_patching:accelerate_once")
        begin()
    except SiloError as error:
        logging.getLogger("silo").warning("launches go Triton's own way, at its cost: %s", error)
    return True


def begin_checks() -> bool:
    """With ``SILO_CHECK=1``: fills new memory of torch with a pattern, so that kernels that read it are found.

    Returns whether the setting is on.
    """
    if not checks_wanted():
        return False
    from silo.core.plugins import load_place  # noqa: PLC0415  # few programs ask for it

    begin: Any = load_place("silo.integrations.torch.import_hook:watch_memory")
    begin()
    return True


def begin_records() -> bool:
    """With ``SILO_RECORD`` or ``SILO_BUNDLE``: records or serves compiled code, from ``import triton`` on.

    Returns whether one of the settings is on.
    """
    if not records_wanted():
        return False
    from silo.core.plugins import load_place  # noqa: PLC0415  # few programs ask for it

    begin: Any = load_place("silo.kinds.triton.programs.records.capture_activation:begin_by_settings")
    begin()
    return True


def _inactive() -> bool:
    return False


def _another_active() -> str | None:
    """The name of another driver that is active, or None."""
    global _asking  # noqa: PLW0603  # a driver that asks the others in its turn must get an answer
    if _asking:
        return "that asks"
    _asking = True
    try:
        backends: Any = sys.modules["triton.backends"].backends
        return next((name for name, backend in backends.items() if name != NAME and backend.driver.is_active()), None)
    finally:
        _asking = False


def _require() -> None:
    """Raises an error unless Triton's version and the CPU are supported, and the native module is installed."""
    from silo.drivers.cpu.levels import host_target  # noqa: PLC0415  # with `import triton`, where nobody may ask
    from silo.kinds.triton.front.adapter import require_triton  # noqa: PLC0415
    from silo.launch.native import cpu_threads  # noqa: PLC0415

    require_triton(force=settings().force_triton)
    host_target()
    cpu_threads()
