"""``silo run``: running the cases of kernels and checking the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from silo.api.declared.ready_cases import PreparedCase, prepare_recipe
from silo.api.kernels.bundle import BundledKernel, load
from silo.api.kernels.check import check as checking_mode
from silo.api.kernels.collection import collect_kernels
from silo.api.kernels.kernel import Kernel
from silo.api.machine.device_plugins import device_named
from silo.api.machine.user_files import PlaceKind, kind_of
from silo.api.tuning.case_tuning import call_arguments, case_studies, device_of, materializer
from silo.core.decisions import Rejected
from silo.core.protocols import Device
from silo.core.values import Value
from silo.errors import (
    BundleFormatError,
    CaseError,
    CompilerMissingError,
    DeviceError,
    LockError,
    PackageError,
    SiloError,
    TrustError,
)
from silo.settings import override
from silo.tune.statistics import median

__all__ = ["CaseOutcome", "run_cases"]

_REPEATS = 5

# Not a case's fault, and every further case would meet it.
_FATAL = (TrustError, CompilerMissingError, DeviceError, BundleFormatError, LockError, PackageError)


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """What one case did. ``time_ns`` is the median of a few launches after the checked one; None: not timed there."""

    kernel: str
    case: str
    config: str
    ok: bool
    time_ns: int | None = None
    max_error: float | None = None
    message: str = ""


def run_cases(
    path: Path,
    *,
    device: str | None = None,
    kernels: Sequence[str] | None = None,
    arrays: str | None = None,
    trust: bool = False,
    tune: str | None = None,
    check: bool = False,
) -> list[CaseOutcome]:
    """Run the cases of a Python file or a bundle. A case that fails is an outcome; what concerns the file is an error.

    They run on ``device``, or where their arrays, which are in host memory then, and the kernel's kind lead. With
    ``check`` each runs once, in checking mode (:func:`silo.check`), and is not timed.

    Raises:
        CaseError: there is no case to run.
        SiloError: the file cannot be read, its host code is not trusted, or the device is not here.
    """
    found = None if device is None else device_named(device)
    if check and found is not None and found != device_named("cpu"):
        raise DeviceError(f"checking runs on the CPU, not on {device}: leave --device out")
    if kind_of(path) is not PlaceKind.BUNDLE:
        with override(**({} if tune is None else {"tune": tune})):
            return [
                row
                for kernel in collect_kernels([path], kernels)
                for row in _run_kernel(kernel, found, arrays, check=check)
            ]
    loaded = load(path, trust=trust)
    chosen = {name: found or loaded[name].host_device() for name in kernels or tuple(loaded)}
    for name, on in chosen.items():
        loaded[name].require_consent(on)
    rows = [row for name, on in chosen.items() for row in _run_bundled(loaded[name], on, arrays, check=check)]
    if not rows:
        raise CaseError(f"{path} holds no case of {', '.join(chosen)}")
    return rows


def _run_kernel(kernel: Kernel, device: Device | None, library: str | None, *, check: bool) -> list[CaseOutcome]:
    rows: list[CaseOutcome] = []
    for study in case_studies(kernel, device_of(kernel, device), library):
        named, on = call_arguments(kernel, study.case), study.situation.device
        if check:
            rows.append(_check(kernel, study.case, named, on))
        else:
            rows.append(_run(kernel, study.case, kernel.resolver.launcher_on(on), named, on))
    return rows


def _run_bundled(kernel: BundledKernel, device: Device, library: str | None, *, check: bool) -> list[CaseOutcome]:
    rows: list[CaseOutcome] = []
    for recipe in kernel.recipes():
        case = prepare_recipe(recipe, materializer(library, device))
        named = {**case.arguments, **case.options}
        if check:
            rows.append(_check(kernel, case, named, device))
        else:
            rows.append(_run(kernel, case, kernel.launcher_on(device), named, device))
    return rows


def _check(kernel: Kernel | BundledKernel, case: PreparedCase, named: dict[str, object], device: Device) -> CaseOutcome:
    checked = checking_mode(kernel, uninitialized=case.uninitialized)
    try:
        config = checked.config(**named, **case.grid_argument(held=kernel.holds_grid))
        grid = _grid(kernel, case, config, device)
        (checked if grid is None else checked[grid])(**named)
        result, argument = case.check()
    except CaseError:
        raise
    except SiloError as error:
        if isinstance(error, _FATAL):
            raise
        return CaseOutcome(kernel.name, case.label, "", ok=False, message=f"{type(error).__name__}: {error}")
    shown = _shown(config)
    if result is None:
        return CaseOutcome(kernel.name, case.label, shown, ok=True, message="clean; nothing is expected of it")
    message = "clean" if result.ok else f"{argument}: {result.message}"
    return CaseOutcome(kernel.name, case.label, shown, result.ok, None, result.max_abs_error, message)


def _grid(kernel: Kernel | BundledKernel, case: PreparedCase, config: Mapping[str, Value], device: Device) -> object:
    """The case's grid for the config that a call gets; None where the kernel declares it.

    Calls that leave blocks open are refused a grid of integers, so there it is a function: it does follow the config.
    """
    grid = case.grid_of(config, device.facts())

    def of_config(_: object) -> object:
        return grid

    counted = grid is not None and isinstance(kernel, Kernel) and kernel.open_blocks
    return of_config if counted else grid


def _shown(config: Mapping[str, Value]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(config.items()))


def _run(
    kernel: Kernel | BundledKernel,
    case: PreparedCase,
    launcher: Any,  # noqa: ANN401  # a native launcher
    named: dict[str, object],
    device: Device,
) -> CaseOutcome:
    name = kernel.name
    try:
        config = launcher.resolve(**named, **case.grid_argument(held=kernel.holds_grid)).config
        grid = _grid(kernel, case, config, device)
        launch: Callable[[], object] = (
            (lambda: launcher[grid](**named)) if grid is not None else (lambda: launcher(**named))
        )
        launch()
        device.synchronize()
        result, argument = case.check()
        time_ns = None if isinstance(device.measuring, Rejected) else _median_ns(device, launch)
    except CaseError:
        raise
    except SiloError as error:
        if isinstance(error, _FATAL):
            raise
        return CaseOutcome(name, case.label, "", ok=False, message=f"{type(error).__name__}: {error}")
    shown = _shown(config)
    if result is None:
        return CaseOutcome(name, case.label, shown, ok=True, time_ns=time_ns, message="nothing is expected of it")
    message = "" if result.ok else f"{argument}: {result.message}"
    return CaseOutcome(name, case.label, shown, result.ok, time_ns, result.max_abs_error, message)


def _median_ns(device: Device, launch: Callable[[], object]) -> int:
    timer = device.timer()
    return median([timer.elapsed_ns(launch, 1) for _ in range(_REPEATS)])
