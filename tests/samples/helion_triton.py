"""Kernels that Helion generates for Triton from tensors on the CPU; each is launched by a given launcher."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false

import helion
import helion.language as hl
import torch


@helion.kernel(backend="triton", static_shapes=True, autotune_effort="none")
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + y[tile]
    return out


@helion.kernel(backend="triton", static_shapes=True, autotune_effort="none")
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.nn.functional.softmax(x[tile, :], dim=1)
    return out


def run(kernel, arguments, launcher):
    """Call the kernel's generated host function with the launcher; return its result."""
    bound = kernel.bind(arguments)
    return bound.compile_config(bound.config_spec.default_config())(*arguments, _launcher=launcher)
