"""``silo selftest metal``: runs small kernels, compares their results, and prints a report to share."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silo.errors import SiloError, ToolchainError
from silo.frozen import frozen
from silo.kernels.kernel import kernel as make_kernel
from silo.kinds.metal.front.metal_source import metal
from silo.machine.device_plugins import devices_of_kind
from silo.sources.installations import SelfTestReport, SelfTestResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CONSTANTS", "PROBES", "TEXT", "Probe", "Runner", "selftest"]

# ---- The kernels, in ``probes.metal``: the feature that each tests, and its expected results ----

TEXT = Path(__file__).with_name("probes.metal")
CONSTANTS: dict[str, bool | int | float] = {"TIMES": 3, "PLUS": 0.25, "TURN": True}


@frozen
class Probe:
    """A kernel to test, launched with ``grid`` threadgroups of ``group`` threads.

    ``arguments`` takes the module numpy and returns the arguments; ``expected`` takes numpy and the arguments, and
    returns the expected contents of the array ``out``. ``bound`` is the relative error that results may have; 0
    requires equal bits.
    """

    kernel: str
    asks: str
    group: tuple[int, ...]
    grid: tuple[int, ...]
    arguments: Callable[[Any], tuple[Any, ...]]
    expected: Callable[[Any, tuple[Any, ...]], Any]
    bound: float = 0.0


def _values(np: Any, count: int, dtype: str = "float32") -> Any:  # noqa: ANN401  # numpy, imported by the caller
    return ((np.arange(count) * 37 + 11) % 101).astype(dtype)


def _sums(np: Any, inputs: tuple[Any, ...]) -> Any:  # noqa: ANN401
    x = inputs[0]
    sums = x.copy().reshape(-1, 32)
    for v, row in zip(x.reshape(-1, 32), sums, strict=True):
        before = np.cumsum(v) - v
        row[:] = v.sum() * 3 + v[np.arange(32) ^ 5] * 7 + before + v[31] * 11 + np.arange(32)
    return sums.reshape(-1)


def _fragment(np: Any, inputs: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """Returns an 8 x 8 matrix, flat, in which each lane ``l`` of a simdgroup has written ``2 l`` and ``2 l + 1``.

    Lane ``l`` holds two neighbours of row ``4 (l/16) + (l/2) % 4``, in the half of the columns that bit 3 of ``l``
    selects.
    """
    del inputs
    matrix = np.zeros((8, 8), np.float32)
    for lane in range(32):
        quad = lane // 4
        row, column = (quad & 4) + (lane // 2) % 4, (quad & 2) * 2 + (lane % 2) * 2
        matrix[row, column : column + 2] = lane * 2, lane * 2 + 1
    return matrix.reshape(-1)


def _groups(np: Any, inputs: tuple[Any, ...]) -> Any:  # noqa: ANN401
    del inputs
    z, y, x = np.indices((4, 6, 8))
    return (x // 4 + 10 * (y // 2) + 100 * (z // 2)).astype(np.int32).reshape(-1)


def _mathematics(np: Any, inputs: tuple[Any, ...]) -> Any:  # noqa: ANN401
    x = inputs[0]
    wide = x.astype(np.float64)
    return np.exp(-wide / 16) + np.sqrt(wide) / (wide + 3) + 1 / np.sqrt(wide + 1)


PROBES: tuple[Probe, ...] = (
    Probe(
        "add",
        "a grid with more threads than elements",
        (256,),
        (4,),
        lambda np: (_values(np, 1000), np.full(1000, 0.5, np.float32), np.zeros(1000, np.float32), 1000),
        lambda _, given: given[0] + given[1],
    ),
    Probe(
        "numbers",
        "numbers of every width, passed by value",
        (1,),
        (1,),
        lambda np: (np.zeros(8, np.float32), 2**32 - 7, -(2**31), 65535, -300, 200, True, 0.5, 1.5),
        lambda np, _: np.array([9, -1, 65535, -300, 200, 1, 0.5, 1.5], np.float32),
    ),
    Probe(
        "constants",
        "constants with values",
        (64,),
        (2,),
        lambda np: (_values(np, 128), np.zeros(128, np.float32)),
        lambda np, given: -(given[0] * 3 + np.float32(0.25)),
    ),
    Probe(
        "barrier",
        "threadgroup memory, and threads that wait for each other",
        (128,),
        (3,),
        lambda np: (_values(np, 384, "int32"), np.zeros(384, np.int32)),
        lambda _, given: given[0].reshape(3, 128)[:, ::-1].reshape(-1),
    ),
    Probe(
        "simd",
        "32 lanes: sums, shuffles, running sums",
        (64,),
        (1,),
        lambda np: (_values(np, 64, "int32"), np.zeros(64, np.int32)),
        _sums,
    ),
    Probe(
        "product",
        "matrices of 8x8, loaded, multiplied and stored by a simdgroup",
        (32,),
        (1,),
        lambda np: (_values(np, 64), _values(np, 64)[::-1].copy(), np.zeros(64, np.float32)),
        lambda _, given: (given[0].reshape(8, 8) @ given[1].reshape(8, 8) + 1).reshape(-1),
    ),
    Probe(
        "fragment_lanes",
        "which elements of such a matrix each lane holds",
        (32,),
        (1,),
        lambda np: (np.zeros(64, np.float32),),
        _fragment,
    ),
    Probe(
        "atomics",
        "atomic additions of many threads",
        (256,),
        (1,),
        lambda np: (_values(np, 4096, "uint8"), np.zeros(16, np.uint32)),
        lambda np, given: np.bincount(given[0] % 16, minlength=16).astype(np.uint32),
    ),
    Probe(
        "axes",
        "grids and threadgroups of three axes",
        (4, 2, 2),
        (2, 3, 2),
        lambda np: (np.zeros(8 * 6 * 4, np.int32),),
        _groups,
    ),
    Probe(
        "halves",
        "half, swizzles, and conversions between vectors",
        (32,),
        (2,),
        lambda np: (_values(np, 64, "float16"), np.zeros(64, np.float16)),
        lambda _, given: given[0] * 7 + 1,
    ),
    Probe(
        "fast_math",
        "exp, division and square roots, to four parts in a million",
        (32,),
        (4,),
        lambda np: (_values(np, 128), np.zeros(128, np.float32)),
        _mathematics,
        bound=4e-6,
    ),
)


# ---- Running the kernels, and the report ----


@frozen
class Runner:
    """A way to run kernels: ``make`` converts an array from numpy's to a library's, ``read`` converts it back."""

    name: str
    make: Callable[[NDArray[Any]], Any]
    read: Callable[[Any], NDArray[Any]]


def selftest(probes: Sequence[Probe] = PROBES) -> SelfTestReport:
    """Runs every probe: on a Mac on its GPU, through the installed torch and MLX; elsewhere on the emulator.

    Raises:
        ToolchainError: numpy is missing, or both torch and MLX are missing on a Mac.
        CompilerMissingError: clang is missing on a machine other than a Mac.
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
    arguments = probe.arguments(np)
    passed = [runner.make(argument) if isinstance(argument, np.ndarray) else argument for argument in arguments]
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
        actual = runner.read(passed[declared.source.signature.names.index("out")])
    except SiloError as error:
        wrong = f"{type(error).__name__}: {error}".replace("\n", " ")
        return SelfTestResult(probe.kernel, probe.asks, runner.name, wrong)
    expected = probe.expected(np, arguments)
    off = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    error = float((off / np.maximum(np.abs(expected.astype(np.float64)), 1)).max())
    wrong = "" if error <= probe.bound else _first(actual, expected, off)
    return SelfTestResult(probe.kernel, probe.asks, runner.name, wrong, error)


def _first(results: NDArray[Any], expected: NDArray[Any], off: NDArray[Any]) -> str:
    offset = int(off.argmax())
    count = int((off != 0).sum())
    return f"{count} of {off.size} differ; out[{offset}] is {results.reshape(-1)[offset]}, not {expected[offset]}"


def _runners_of_mac(np: Any) -> list[Runner]:  # noqa: ANN401
    runners: list[Runner] = []
    for package, make in (("torch", _torch_runner), ("mlx.core", _mlx_runner)):
        try:
            runners += make(import_module(package), np)
        except ImportError:
            continue
    return runners if devices_of_kind("metal") else []


def _torch_runner(torch: Any, np: Any) -> list[Runner]:  # noqa: ANN401
    del np
    if not torch.backends.mps.is_available():
        return []
    return [Runner("torch", lambda array: torch.from_numpy(array).to("mps"), lambda array: array.cpu().numpy())]


def _mlx_runner(mx: Any, np: Any) -> list[Runner]:  # noqa: ANN401
    return [Runner("MLX", mx.array, np.asarray)] if mx.metal.is_available() else []


def _facts() -> tuple[tuple[str, str], ...]:
    facts = [("system", f"{platform.system()} {platform.mac_ver()[0] or platform.release()} {platform.machine()}")]
    facts += [("device", f"{device.model}, Metal {device.target.arch}") for device in devices_of_kind("metal")]
    facts.append(("Python", sys.version.split()[0]))
    for package in ("kernel-silo", "torch", "mlx", "numpy"):
        try:
            facts.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(facts)
