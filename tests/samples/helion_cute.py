"""Kernels written in Helion, and the CuTe code that Helion generates from them on a machine without a GPU.

Helion checks for a torch that was built for CUDA 13, and reads the GPU's shared memory. Both checks are skipped here,
because nothing that Helion generates is launched. A program imports this module if Helion and the DSL are installed.
"""
# pyright: reportMissingImports=false

import os

os.environ.setdefault("HELION_BACKEND", "cute")

import helion
import helion.language as hl
import torch
from helion._compiler.cute import cute_mma, cutedsl_compat
from helion._testing import patch_cute_mma_support

from silo.integrations.helion import CallNotes

cutedsl_compat.check_cute_backend_requirements = lambda: None
cute_mma._tcgen05_candidate_exceeds_smem = lambda *args, **kwargs: False
helion.runtime.get_num_sm = lambda *args, **kwargs: 148

ROWS, COLUMNS, DEPTH = 64, 256, 128


@helion.kernel(static_shapes=True, backend="cute")
def add(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + y[tile]
    return out


@helion.kernel(static_shapes=True, backend="cute")
def softmax(x):
    rows, _ = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(rows):
        out[tile, :] = torch.softmax(x[tile, :], dim=1)
    return out


@helion.kernel(static_shapes=True, backend="cute")
def matmul(x, y):
    rows, depth = x.size()
    _, columns = y.size()
    out = torch.empty([rows, columns], dtype=x.dtype, device=x.device)
    for row, column in hl.tile([rows, columns]):
        total = hl.zeros([row, column], dtype=torch.float32)
        for step in hl.tile(depth):
            total = torch.addmm(total, x[row, step], y[step, column])
        out[row, column] = total
    return out


@helion.kernel(static_shapes=True, backend="cute")
def row_sum(x):
    rows, _ = x.size()
    out = torch.empty([rows], dtype=x.dtype, device=x.device)
    for tile in hl.tile(rows):
        out[tile] = x[tile, :].sum(-1)
    return out


def noted(kernel, *arguments, config=None):
    """Return the only launch that a kernel's generated host function makes."""
    bound = kernel.bind(arguments)
    notes = CallNotes()
    bound.compile_config(config or bound.config_spec.default_config())(*arguments, _launcher=notes)
    (call,) = notes.calls
    return call


def add_call():
    return noted(add, torch.empty(ROWS, COLUMNS), torch.empty(ROWS, COLUMNS))


def softmax_call():
    return noted(softmax, torch.empty(ROWS, COLUMNS))


def row_sum_call():
    return noted(row_sum, torch.empty(ROWS, COLUMNS))


def matmul_call():
    return noted(matmul, torch.empty(ROWS, DEPTH), torch.empty(DEPTH, COLUMNS))


def tensor_core_call(rows=512, columns=512, depth=256, tile=(128, 128, 64), **options):
    """Return the launch of a matmul on Blackwell's tensor cores, whose operands are copied by TMA."""
    operands = (torch.empty(rows, depth, dtype=torch.bfloat16), torch.empty(depth, columns, dtype=torch.bfloat16))
    with patch_cute_mma_support():
        return noted(matmul, *operands, config=helion.Config(block_sizes=list(tile), **options))
