"""``silo selftest metal``: what runs Metal kernels here does what the language promises, as a report to paste."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from silo.core.selftest_report import SelfTestReport, SelfTestResult
from silo.errors import SiloError, ToolchainError
from silo.frozen import frozen
from silo.kernels.kernel import kernel as make_kernel
from silo.kinds.metal.front.metal_definition import metal
from silo.kinds.metal.programs.probes import CONSTANTS, PROBES, TEXT, Probe
from silo.machine.device_plugins import devices_of_kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Runner", "selftest"]


@frozen
class Runner:
    """A way to run kernels: ``make`` an array of a library from numpy's, and ``read`` it again."""

    name: str
    make: Callable[[NDArray[Any]], Any]
    read: Callable[[Any], NDArray[Any]]


def selftest(probes: Sequence[Probe] = PROBES) -> SelfTestReport:
    """Run every probe on a Mac's GPU, through torch and MLX as they are there; elsewhere on the emulator.

    Raises:
        ToolchainError: numpy is missing, or on a Mac both torch and MLX are.
        CompilerMissingError: no clang, where there is no Mac's GPU.
    """
    try:
        import numpy as np  # noqa: PLC0415  # for this command alone
    except ImportError as error:
        raise ToolchainError("the probes are made and compared with numpy: pip install 'kernel-silo[numpy]'") from error
    on_mac = platform.system() == "Darwin"
    runners = _runners_of_mac(np) if on_mac else [Runner("the emulator", lambda array: array, lambda array: array)]
    if not runners:
        raise ToolchainError("neither torch nor MLX is installed and sees a GPU: they launch Metal kernels on a Mac")
    results = tuple(_run(probe, runner, np) for runner in runners for probe in probes)
    return SelfTestReport("Metal", _facts(), results, on_mac)


def _run(probe: Probe, runner: Runner, np: Any) -> SelfTestResult:  # noqa: ANN401
    given = probe.arguments(np)
    passed = [runner.make(one) if isinstance(one, np.ndarray) else one for one in given]
    try:
        declared = metal(
            TEXT,
            kernel=probe.kernel,
            constants=CONSTANTS,
            group_size=probe.group,
            effects={"out": "out"},
            grid=probe.grid,
        )
        make_kernel(declared)(*passed)
        found = runner.read(passed[declared.source.signature.names.index("out")])
    except SiloError as error:
        wrong = f"{type(error).__name__}: {error}".replace("\n", " ")
        return SelfTestResult(probe.kernel, probe.asks, runner.name, wrong)
    expected = probe.expected(np, given)
    off = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    error = float((off / np.maximum(np.abs(expected.astype(np.float64)), 1)).max())
    wrong = "" if error <= probe.bound else _first(found, expected, off)
    return SelfTestResult(probe.kernel, probe.asks, runner.name, wrong, error)


def _first(found: NDArray[Any], expected: NDArray[Any], off: NDArray[Any]) -> str:
    place = int(off.argmax())
    count = int((off != 0).sum())
    return f"{count} of {off.size} differ; out[{place}] is {found.reshape(-1)[place]}, not {expected[place]}"


def _runners_of_mac(np: Any) -> list[Runner]:  # noqa: ANN401
    found: list[Runner] = []
    for package, make in (("torch", _torch_runner), ("mlx.core", _mlx_runner)):
        try:
            found += make(import_module(package), np)
        except ImportError:
            continue
    return found if devices_of_kind("metal") else []


def _torch_runner(torch: Any, np: Any) -> list[Runner]:  # noqa: ANN401
    del np
    if not torch.backends.mps.is_available():
        return []
    return [Runner("torch", lambda array: torch.from_numpy(array).to("mps"), lambda array: array.cpu().numpy())]


def _mlx_runner(mx: Any, np: Any) -> list[Runner]:  # noqa: ANN401
    return [Runner("MLX", mx.array, np.asarray)] if mx.metal.is_available() else []


def _facts() -> tuple[tuple[str, str], ...]:
    found = [("system", f"{platform.system()} {platform.mac_ver()[0] or platform.release()} {platform.machine()}")]
    found += [("device", f"{device.model}, Metal {device.target.arch}") for device in devices_of_kind("metal")]
    found.append(("Python", sys.version.split()[0]))
    for package in ("kernel-silo", "torch", "mlx", "numpy"):
        try:
            found.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(found)
