"""Random arguments for the requests of a warm-up or of serving: sizes, tensors and views, determined by a seed."""

from __future__ import annotations

import random
from typing import Any, TypeVar

import torch

T = TypeVar("T")

MOST = 256
# batch sizes of a warm-up: those that an engine captures CUDA graphs for, and the largest
WARM_SIZES = (1, 16, 64, MOST)
DEVICE = "cuda"


class Draws:
    """The random choices of one request.

    ``warm`` is the number of a warm-up request, or None for a request while serving.
    """

    def __init__(self, name: str, number: int, *, warm: bool, most: int = MOST) -> None:
        self.random = random.Random(f"{name} {number} {warm}")
        self.warm = number if warm else None
        self.most = most
        self.combinations = 1
        self._rest = number // len(WARM_SIZES)
        self._generator = torch.Generator().manual_seed(self.random.getrandbits(40))

    def option(self, *values: T) -> T:
        """Return one of the values that a deployment chooses from (dtypes, flags).

        The warm-up meets every combination of them.
        """
        self.combinations *= len(values)
        if self.warm is None:
            return self.random.choice(values)
        chosen = values[self._rest % len(values)]
        self._rest //= len(values)
        return chosen

    def batch(self, most: int | None = None) -> int:
        """Return the number of rows or sequences of a request: 1 to ``most``, small numbers more often."""
        most = min(most or self.most, self.most)
        if self.warm is not None:
            return min(WARM_SIZES[self.warm % len(WARM_SIZES)], most)
        return min(most, 1 + int(most * self.random.random() ** 2))

    def length(self, most: int = 200) -> int:
        """Return the number of tokens of one sequence: any number up to ``most``, or in a warm-up a multiple of 16."""
        return (
            16 * self.random.randint(1, max(1, most // 16)) if self.warm is not None else self.random.randint(1, most)
        )

    def lengths(self, count: int, most: int = 200) -> list[int]:
        return [self.length(most) for _ in range(count)]

    def dtype(self) -> torch.dtype:
        return self.option(torch.float16, torch.bfloat16)

    def _placed(self, made: torch.Tensor) -> torch.Tensor:
        """Return the tensor on the device; while serving, sometimes at an address that is not a multiple of 16."""
        if self.warm is not None or self.random.random() < 0.6 or made.numel() == 0:
            return made.to(DEVICE)
        moved = torch.zeros(made.numel() + 1, dtype=made.dtype, device=DEVICE)[1:].view(made.shape)
        return moved.copy_(made)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
        return self._placed((torch.randn(shape, generator=self._generator) * scale).to(dtype))

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float32, low: float = 0, high: float = 1) -> torch.Tensor:
        return self._placed((torch.rand(shape, generator=self._generator) * (high - low) + low).to(dtype))

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return self._placed(torch.randint(low, high, shape, generator=self._generator).to(dtype))

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return self._placed(torch.zeros(shape, dtype=dtype))

    def tensor(self, values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return self._placed(torch.tensor(values, dtype=dtype))

    def permutation(self, count: int, taken: int | None = None, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """Return ``taken`` different integers below ``count`` (all of them by default) in random order."""
        return self._placed(torch.randperm(count, generator=self._generator)[:taken].to(dtype))

    def starts(self, lengths: list[int], dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """Return the index at which each packed sequence begins, followed by the index at which the last one ends."""
        return self.tensor([sum(lengths[:at]) for at in range(len(lengths) + 1)], dtype)
