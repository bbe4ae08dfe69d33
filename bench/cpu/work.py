"""One row of the CPU benchmark: the same computation by Silo, torch eager, torch.compile and Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

Scale = Literal["full", "quick", "tiny"]  # the sizes of the bars; of a quick look; for the interpreter
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int32": torch.int32}

# The largest allowed error, in units of |expected| + the mean of |expected|.
TOLERANCE = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1.6e-2, "int32": 0.0}


@dataclass(frozen=True)
class Call:
    """One launch.

    ``grid`` and ``config`` are for the interpreter, which has neither declared grids nor tuning spaces.
    """

    kernel: Any
    args: tuple[object, ...]
    grid: tuple[int, ...]
    config: Mapping[str, int]
    kwargs: Mapping[str, object] = field(default_factory=dict[str, object])

    def run(self) -> None:
        """Launch as a user of Silo does."""
        self.kernel(*self.args, **self.kwargs)

    def interpret(self) -> None:
        """Launch as a user of Triton does, under ``TRITON_INTERPRET=1``."""
        self.kernel[self.grid](*self.args, **self.kwargs, **self.config)


@dataclass(frozen=True)
class Workload:
    """One row.

    ``work`` is proportional to the amount of computation, so that times of one kernel's sizes can be scaled.

    ``compiled`` is a function and its arguments for ``torch.compile``; None if eager is a single call. The function may
    write to its arguments. ``results`` returns, by name, Silo's outputs and the same computed in float64.
    """

    name: str
    dtype: str
    size: str
    work: float
    calls: tuple[Call, ...]
    eager: Callable[[], object]
    compiled: tuple[Callable[..., object], tuple[object, ...]] | None
    results: Callable[[], Mapping[str, tuple[torch.Tensor, torch.Tensor]]]
    clear: Callable[[], object] | None = None
    tolerance: float | None = None

    @property
    def label(self) -> str:
        """The row's name, dtype and size as one text."""
        return f"{self.name} {self.dtype} {self.size}"

    def silo(self) -> None:
        """Make all of the row's launches by Silo."""
        if self.clear is not None:
            self.clear()
        for call in self.calls:
            call.run()

    def interpret(self) -> None:
        """Make all of the row's launches in Triton's interpreter."""
        if self.clear is not None:
            self.clear()
        for call in self.calls:
            call.interpret()

    def error(self) -> float:
        """Return the largest error of the last run divided by the tolerance: above 1 the row is wrong."""
        limit = TOLERANCE[self.dtype] if self.tolerance is None else self.tolerance
        return max(_error(found, wanted, limit) for found, wanted in self.results().values())


def _error(found: torch.Tensor, wanted: torch.Tensor, limit: float) -> float:
    wide = wanted.double()
    off = (found.double() - wide).abs()
    if limit == 0.0:
        return 0.0 if bool((off == 0).all()) else float("inf")
    scaled = off / (limit * (wide.abs() + wide.abs().mean()))
    return float("inf") if bool(scaled.isnan().any()) else float(scaled.max())


def normal(*shape: int, dtype: str = "fp32") -> torch.Tensor:
    """Return normally distributed random numbers of a dtype."""
    return torch.randn(shape).to(DTYPES[dtype])


def empty(*shape: int, dtype: str = "fp32") -> torch.Tensor:
    """Return an uninitialized tensor of a dtype."""
    return torch.empty(shape, dtype=DTYPES[dtype])
