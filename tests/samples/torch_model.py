"""A torch model that contains Silo kernels in the ways in which programs use them."""

from __future__ import annotations

import torch

from torch_operators import OPERATORS, axpy, silu


class Model(torch.nn.Module):
    """A model of a layer, a kernel as activation (called without a grid), an operator, and a kernel with a grid."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)
        self.activation = silu
        self.shift = axpy
        self.combine = OPERATORS["mul"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        active = torch.empty_like(hidden)
        self.activation(hidden, active, hidden.numel())
        total = self.combine(active, x, x.numel())
        self.shift[(1,)](x, total, 16, 0.5, BLOCK=16)
        return total

    def wanted(self, x: torch.Tensor) -> torch.Tensor:
        """Return the same result, computed by torch alone."""
        total = torch.nn.functional.silu(self.layer(x)) * x
        total.view(-1)[:16] += 0.5 * x.view(-1)[:16]
        return total
