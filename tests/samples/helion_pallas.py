"""Kernels that Helion generates for Pallas from tensors on the CPU; each is launched by a given launcher."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false

import math

import helion
import helion.language as hl
import torch


@helion.kernel(backend="pallas", configs=[helion.Config(block_sizes=[128])])
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


@helion.kernel(backend="pallas", configs=[helion.Config(block_sizes=[8])])
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.nn.functional.softmax(x[tile, :], dim=1)
    return out


@helion.kernel(backend="pallas", configs=[helion.Config(block_sizes=[8])])
def layer_norm(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        centred = row - (row.sum(dim=1) / x.size(1))[:, None]
        variance = (centred * centred).sum(dim=1) / x.size(1)
        out[tile, :] = centred * torch.rsqrt(variance + 1e-5)[:, None]
    return out


@helion.kernel(backend="pallas", configs=[helion.Config(block_sizes=[64, 128, 128])])
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        total = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            total = torch.addmm(total, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = total
    return out


@helion.kernel(backend="pallas", configs=[helion.Config(block_sizes=[1, 64, 128])])
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    heads, length, width = q.size()
    width = hl.specialize(width)
    out = torch.empty_like(q)
    for tile_b, tile_m in hl.tile([heads, length]):
        most = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        summed = torch.full_like(most, 1.0)
        total = hl.zeros([tile_b, tile_m, width], dtype=torch.float32)
        scaled = q[tile_b, tile_m, :] * (1 / math.sqrt(width))
        for tile_n in hl.tile(k.size(1)):
            scores = torch.bmm(scaled, k[tile_b, tile_n, :].transpose(1, 2))
            now = torch.maximum(most, torch.amax(scores, -1))
            power = torch.exp(scores - now[:, :, None])
            lost = torch.exp(most - now)
            summed = summed * lost + torch.sum(power, -1)
            total = torch.baddbmm(total * lost[:, :, None], power, v[tile_b, tile_n, :])
            most = now
        out[tile_b, tile_m, :] = total / summed[:, :, None]
    return out


@helion.kernel(backend="pallas", configs=[helion.Config(block_sizes=[128])])
def add_to(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        x[tile] = x[tile] + y[tile]
    return x


def run(kernel, arguments, launcher):
    """Call the kernel's generated host function with the launcher; return its result."""
    bound = kernel.bind(arguments)
    return bound.compile_config(kernel.configs[0])(*arguments, _launcher=launcher)
