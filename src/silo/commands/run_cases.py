"""``silo run`` and ``silo check``: runs the cases of kernels and checks their results, optionally in checking mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from silo.building.ready_cases import PreparedCase, prepare_recipe
from silo.commands.results import CaseOutcome
from silo.core.cases import CaseRecipe
from silo.core.decisions import Rejected
from silo.core.protocols import MOST_STEPS, CheckLimits, Device
from silo.core.values import Value
from silo.errors import (
    ArgumentError,
    BundleFormatError,
    CaseError,
    CompilerMissingError,
    DeviceError,
    LockError,
    PackageError,
    SiloError,
    TrustError,
)
from silo.kernels.bundle_kernels import BundledKernel, Kernels, load
from silo.kernels.checking_launchers import CheckingBundle, CheckingKernel, CheckingLauncher
from silo.kernels.collection import Place, collect_kernels
from silo.kernels.kernel import Kernel, kernel_of
from silo.kernels.kernel import kernel as wrap
from silo.machine.device_plugins import device_named
from silo.machine.user_files import PlaceKind, kind_of
from silo.settings import override
from silo.tuner.statistics import median
from silo.tuning.case_tuning import call_arguments, case_studies, device_of, materializer

__all__ = ["CaseOutcome", "CaseWatch", "CheckingLauncher", "checking_mode", "run_cases"]


def checking_mode(
    kernel: object,
    *,
    nan: bool = False,
    uninitialized: Sequence[str] = (),
    memory: Sequence[object] = (),
    steps: int = MOST_STEPS,
    bounds: Literal["storage", "view"] = "storage",
) -> CheckingLauncher:
    """Returns a launcher that runs ``kernel`` in checking mode; ``silo.check`` documents the checks."""
    if bounds not in ("storage", "view"):
        raise ArgumentError(f"bounds is 'storage' or 'view', not {bounds!r}")
    limits = CheckLimits(nan, tuple(uninitialized), tuple(memory), steps, views=bounds == "view")
    silo_kernel = kernel_of(kernel)
    if silo_kernel is None:
        if isinstance(kernel, BundledKernel):
            return CheckingBundle(kernel, limits)
        silo_kernel = kernel_of(wrap(kernel))
    assert silo_kernel is not None
    return CheckingKernel(silo_kernel, silo_kernel.resolver, limits)


_REPEATS = 5

# These errors are not about a particular case: every further case would raise them.
_FATAL = (TrustError, CompilerMissingError, DeviceError, BundleFormatError, LockError, PackageError)


class CaseWatch(Protocol):
    """Selects the cases to run, and is notified about each. Cases are numbered across all kernels, in order."""

    def wants(self, number: int) -> bool:
        """Returns whether to run the case."""
        ...

    def begun(self, number: int, kernel: str, case: str) -> None:
        """Called when a case begins."""
        ...

    def over(self, number: int, outcome: CaseOutcome) -> None:
        """Called when a case is over and its arrays are freed."""
        ...

    def done(self) -> None:
        """Called once when all cases are over."""
        ...


class _All:
    """Selects every case. Implements :class:`CaseWatch`."""

    def wants(self, number: int) -> bool:
        del number
        return True

    def begun(self, number: int, kernel: str, case: str) -> None:
        del number, kernel, case

    def over(self, number: int, outcome: CaseOutcome) -> None:
        del number, outcome

    def done(self) -> None:
        pass


class _Rows:
    """Collects the outcomes of the selected cases."""

    def __init__(self, watch: CaseWatch) -> None:
        self._watch = watch
        self._count = 0
        self.outcomes: list[CaseOutcome] = []

    @property
    def any_case(self) -> bool:
        """Whether any case exists."""
        return self._count > 0

    def add(self, kernel: str, case: str, run: Callable[[], CaseOutcome]) -> None:
        """Runs a case if it is selected; ``run`` keeps no reference to the case's arrays."""
        number = self._count
        self._count += 1
        if not self._watch.wants(number):
            return
        self._watch.begun(number, kernel, case)
        outcome = run()
        self.outcomes.append(outcome)
        self._watch.over(number, outcome)


def run_cases(
    path: Place,
    *,
    device: str | None = None,
    kernels: Sequence[str] | None = None,
    arrays: str | None = None,
    trust: bool = False,
    tune: str | None = None,
    check: bool = False,
    watch: CaseWatch | None = None,
) -> list[CaseOutcome]:
    """Runs the cases of a Python file, a kernel or a bundle. A case that fails is an outcome; a bad file is an error.

    The cases run in this process, which may crash if a kernel writes out of bounds; therefore ``silo run`` starts
    another process for them. A ``watch`` selects the cases, and is notified about each.

    The cases run on ``device``. Without a device, their arrays are in host memory, and the kernel's kind decides where
    they run.
    With ``check`` each case runs once, in checking mode (:func:`silo.check`), and is not timed.

    Raises:
        CaseError: no case exists to run.
        SiloError: the file cannot be read, its host code is not trusted, or the device is not here.
    """
    named_device = None if device is None else device_named(device)
    if check and named_device is not None and named_device != device_named("cpu"):
        raise DeviceError(f"checking runs on the CPU, not on {device}: leave --device out")
    watch = watch or _All()
    rows = _Rows(watch)
    if not isinstance(path, Path) or kind_of(path) is not PlaceKind.BUNDLE:
        with override(**({} if tune is None else {"tune": tune})):
            for kernel in collect_kernels([path], kernels):
                _run_kernel(kernel, named_device, arrays, rows, check=check)
    else:
        loaded = load(path, trust=trust)
        chosen = {name: named_device or loaded[name].host_device() for name in kernels or tuple(loaded)}
        for name, on in chosen.items():
            loaded[name].require_consent(on)
        _require_code(path, loaded, chosen)
        for name, on in chosen.items():
            _run_bundled(loaded[name], on, arrays, rows, check=check)
        if not rows.any_case:
            raise CaseError(f"{path} holds no case of {', '.join(chosen)}")
    watch.done()
    return rows.outcomes


def _require_code(path: Path, loaded: Kernels, chosen: Mapping[str, Device]) -> None:
    """Raises ``DeviceError`` if the bundle lacks code for every device on which its kernels would run."""
    if any(loaded[name].serves(on) for name, on in chosen.items()):
        return
    targets = sorted({str(target) for name in chosen for target in loaded[name].targets})
    machines = sorted({str(on.target) for on in chosen.values()})
    raise DeviceError(
        f"{path} has code for {', '.join(targets)}, which {', '.join(machines)} does not run: run it on a machine with "
        f"such a device, or build it for this one: silo build FILE.py -o {path} --target cpu"
    )


def _run_kernel(kernel: Kernel, device: Device | None, library: str | None, rows: _Rows, *, check: bool) -> None:
    # The cases are popped one by one, so that arrays are freed with their case. If a kernel damaged memory beside its
    # arrays, the process then crashes during that case.
    studies = case_studies(kernel, device_of(kernel, device), library)[::-1]

    def run() -> CaseOutcome:
        study = studies.pop()
        call_values, on = call_arguments(kernel, study.case), study.situation.device
        if check:
            return _check(kernel, study.case, call_values, on)
        return _run(kernel, study.case, kernel.resolver.launcher_on(on), call_values, on)

    while count := len(studies):
        rows.add(kernel.name, studies[-1].case.label, run)
        del studies[count - 1 :]  # drops a case that was not selected


def _run_bundled(kernel: BundledKernel, device: Device, library: str | None, rows: _Rows, *, check: bool) -> None:
    for recipe in kernel.recipes():

        def run(recipe: CaseRecipe = recipe) -> CaseOutcome:
            case = prepare_recipe(recipe, materializer(library, device))
            call_values = {**case.arguments, **case.options}
            if check:
                return _check(kernel, case, call_values, device)
            return _run(kernel, case, kernel.launcher_on(device), call_values, device)

        rows.add(kernel.name, recipe.label, run)


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
    """Returns the case's grid for the config that a call gets; None if the kernel declares its grid.

    The grid is returned as a function, because calls that leave block sizes to the config reject a grid of integers.
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
        binding = launcher.resolve(**named, **case.grid_argument(held=kernel.holds_grid))
        config = binding.config
        grid = _grid(kernel, case, config, device)
        launch: Callable[[], object] = (
            (lambda: launcher[grid](**named)) if grid is not None else (lambda: launcher(**named))
        )
        launch()
        device.synchronize()
        written = [
            parameter.name for parameter in binding.tag.artifact.variant.signature.parameters if parameter.effect.writes
        ]
        result, argument = case.check(written=written)
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
