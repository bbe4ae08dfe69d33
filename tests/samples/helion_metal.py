"""Kernels that Helion generates for Metal from tensors on the CPU; each is launched by a given launcher."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false

import helion
import helion.language as hl
import torch


@helion.kernel(backend="metal", configs=[helion.Config(block_sizes=[256], num_warps=4)])
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


@helion.kernel(backend="metal", configs=[helion.Config(block_sizes=[256], num_warps=4)])
def scaled(x: torch.Tensor, a: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.sigmoid(x[tile] * a)
    return out


@helion.kernel(backend="metal", configs=[helion.Config(block_sizes=[8], num_warps=4)])
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.nn.functional.softmax(x[tile, :], dim=1)
    return out


@helion.kernel(backend="metal", configs=[helion.Config(block_sizes=[8], num_warps=4)])
def argmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.argmax(x[tile, :], dim=1)
    return out


@helion.kernel(backend="metal", configs=[helion.Config(block_sizes=[8], num_warps=4)])
def layer_norm(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        mean = row.sum(dim=1) / x.size(1)
        centred = row - mean[:, None]
        variance = (centred * centred).sum(dim=1) / x.size(1)
        out[tile, :] = centred * torch.rsqrt(variance + 1e-5)[:, None]
    return out


@helion.kernel(backend="metal", configs=[helion.Config(block_sizes=[32, 32, 32], num_warps=4)])
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        total = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            total = torch.addmm(total, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = total
    return out


def run(kernel, arguments, launcher):
    """Call the kernel's generated host function with the launcher; return its result."""
    bound = kernel.bind(arguments)
    return bound.compile_config(kernel.configs[0])(*arguments, _launcher=launcher)
