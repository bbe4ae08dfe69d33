"""The measured limits of a device model: the rates that a copy and matrix products reach with their best configs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from silo.core.cases import Case, Make
from silo.core.device import DeviceModel
from silo.core.protocols import Device
from silo.core.values import Value
from silo.core.variant import ceilings_key
from silo.errors import ToolchainError
from silo.kernels.kernel import Kernel, kernel, kernel_of
from silo.machine.process_session import session
from silo.report.least_time import Ceilings
from silo.sources.kinds import kinds
from silo.sources.source_kind import MeasuresCeilings
from silo.tuning.case_tuning import CaseLimits, case_studies, tune_case

__all__ = ["known_ceilings", "measure_ceilings"]

_log = logging.getLogger("silo")

# Elements of float32 in each array of a copy, which moves 8 bytes per element. The smallest copy fits into a core's own
# cache; the largest moves 512 MiB, which is more than any cache.
_COPIED = tuple(1 << power for power in (13, 15, 17, 19, 21, 23, 26))

_COPY_SPACES: Mapping[str, Sequence[Mapping[str, Value]]] = {
    "cpu": [{"BLOCK": block} for block in (1024, 4096, 16384, 65536)],
    "gpu": [{"BLOCK": block, "num_warps": warps} for block in (1024, 2048, 4096) for warps in (4, 8)],
}
_DOT_SIZES = {"cpu": (256, 512, 1024), "gpu": (2048, 4096)}
_DTYPES = ("float32", "float16")


def _dots(blocks: Sequence[tuple[int, int, int]], **options: int) -> list[dict[str, Value]]:
    return [{"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, **options} for m, n, k in blocks]


_DOT_SPACES: Mapping[str, Sequence[Mapping[str, Value]]] = {
    "cpu": _dots([(64, 64, 64), (128, 64, 32), (128, 128, 64), (128, 256, 128), (256, 256, 256)]),
    "gpu": [
        *_dots([(128, 128, 32), (128, 128, 64)], num_warps=4, num_stages=3),
        *_dots([(128, 128, 32), (128, 128, 64), (128, 256, 32), (128, 256, 64)], num_warps=8, num_stages=3),
    ],
}


def known_ceilings(model: DeviceModel) -> Ceilings | None:
    """Returns the limits stored last for devices of this model, or None."""
    ceilings: Ceilings | None = None
    for record in session().store.records.read(ceilings_key(model)):
        with suppress(ValueError):  # a newer version of Silo may have written a record of another form
            ceilings = Ceilings.from_json(record)
    return ceilings


def measure_ceilings(device: Device) -> Ceilings:
    """Measures the rates that ``device`` reaches, and stores them. Takes seconds, but hardly any time if all is stored.

    A copy and matrix products are measured. Their kernels are ordinary ones: compiled, checked and tuned by Silo, with
    stored trials. A limit is the rate of the best config; for products, at the best size.

    Raises:
        ToolchainError: the language of these kernels is not installed.
        TuneError: no config of a kernel works on this device.
    """
    kind = "cpu" if device.target.kind == "cpu" else "gpu"
    copies = tuple((work, rate) for work, rate in _rates(_copy_kernel(kind), device))
    dots = {dtype: max(rate for _, rate in _rates(_dot_kernel(kind, dtype), device)) for dtype in _DTYPES}
    ceilings = Ceilings(copies, tuple(sorted(dots.items())))
    if ceilings != known_ceilings(device.model):
        session().store.records.append(ceilings_key(device.model), ceilings.to_json())
    return ceilings


def _rates(kernel: Kernel, device: Device) -> Iterator[tuple[int, int]]:
    """Tunes a kernel on its cases; yields each case's bytes or operations, and the best config's rate per second."""
    for study in case_studies(kernel, device):
        outcome, _ = tune_case(study, CaseLimits())
        work = study.case.work
        count = (work.bytes or work.flops or 0) if work else 0
        _log.info("ceilings of %s: %s", device.model.name, outcome.summary)
        yield count, count * 10**9 // max(outcome.require_winner().median_ns, 1)


def _functions() -> Any:  # noqa: ANN401  # a module of kernels
    """Returns the module with the kernels that measure a device's limits, of the first kind that has one."""
    for kind in kinds().values():
        if isinstance(kind, MeasuresCeilings):
            return kind.ceiling_kernels()
    raise ToolchainError("no kind of source that is installed has kernels to measure ceilings with")


def _kernel_of(function: object, **options: Any) -> Kernel:  # noqa: ANN401  # options of silo.kernel
    return cast("Kernel", kernel_of(kernel(function, **options)))


def _copy_grid(a: Any) -> tuple[Any, ...]:  # noqa: ANN401  # a namespace of tracers
    return ((a.n + a.BLOCK - 1) // a.BLOCK,)


def _dot_grid(a: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return ((a.size // a.BLOCK_M) * (a.size // a.BLOCK_N),)


def _copy_kernel(kind: str) -> Kernel:
    kernel = _kernel_of(_functions().copy, space=_COPY_SPACES[kind], key=["n"], grid=_copy_grid)

    def case(n: int, make: Make) -> Case:
        x, out = make.uniform(n), make.empty(n)
        return Case(args=(x, out, n), expected={"out": lambda: x.host}, bytes=8 * n)

    kernel.cases(n=_COPIED)(case)
    return kernel


def _dot_kernel(kind: str, dtype: str) -> Kernel:
    kernel = _kernel_of(
        _functions().dot,
        space=_DOT_SPACES[kind],
        key=["size"],
        grid=_dot_grid,
    )

    def case(size: int, make: Make) -> Case:
        a, b = (make.normal((size, size), dtype=dtype) for _ in range(2))
        out = make.empty((size, size))
        # The tolerances are wide because GPUs multiply float32 in tf32 by default.
        return Case(
            args=(a, b, out, size),
            expected={"c": lambda: a.host.astype("float32") @ b.host.astype("float32")},
            rtol=1e-2,
            atol=0.5,
            flops=2 * size**3,
        )

    kernel.cases(size=_DOT_SIZES[kind])(case)
    return kernel
