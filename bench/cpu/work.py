"""What one row of the CPU benchmark is: how Silo, torch eager, torch.compile and the interpreter do the same thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

Scale = Literal["full", "quick", "tiny"]  # what the bars are for; a look; what the interpreter can do
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int32": torch.int32}

# Largest error, in units of |wanted| + the mean of |wanted|.
TOLERANCE = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1.6e-2, "int32": 0.0}


@dataclass(frozen=True)
class Call:
    """One launch. ``grid`` and ``config`` are the interpreter's, which knows neither declared grids nor spaces."""

    kernel: Any
    args: tuple[object, ...]
    grid: tuple[int, ...]
    config: Mapping[str, int]
    kwargs: Mapping[str, object] = field(default_factory=dict[str, object])

    def run(self) -> None:
        """As a user of Silo calls it."""
        self.kernel(*self.args, **self.kwargs)

    def interpret(self) -> None:
        """As a user of Triton calls it, under ``TRITON_INTERPRET=1``."""
        self.kernel[self.grid](*self.args, **self.kwargs, **self.config)


@dataclass(frozen=True)
class Workload:
    """One row. ``work`` is proportional to what has to be done, and compares sizes of one name.

    ``compiled`` is a function and its arguments for ``torch.compile``; None where there is nothing to compile. It may
    write to its arguments. ``results`` gives what Silo wrote and the same from float64, by name.
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
        """Name, dtype and size."""
        return f"{self.name} {self.dtype} {self.size}"

    def silo(self) -> None:
        """Everything Silo does for the row."""
        if self.clear is not None:
            self.clear()
        for call in self.calls:
            call.run()

    def interpret(self) -> None:
        """The same in Triton's interpreter."""
        if self.clear is not None:
            self.clear()
        for call in self.calls:
            call.interpret()

    def error(self) -> float:
        """The largest error of the last run over the tolerance: above 1 the row is wrong."""
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
    """Normal numbers of a dtype."""
    return torch.randn(shape).to(DTYPES[dtype])


def empty(*shape: int, dtype: str = "fp32") -> torch.Tensor:
    """Uninitialised memory."""
    return torch.empty(shape, dtype=DTYPES[dtype])
