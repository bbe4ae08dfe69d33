"""Kernels in the form that Helion generates for CuTe, written by hand, so that they need only the DSL."""
# pyright: reportMissingImports=false

from __future__ import annotations

import cutlass
from cutlass import cute

_ROWS = 16


@cute.kernel
def _helion_scale(x, out, factor, offset):
    """out = x * factor + offset, one thread for each element; a float and an integer are passed at run time."""
    row = cutlass.Int32(cute.arch.block_idx()[0]) * _ROWS + cutlass.Int32(cute.arch.thread_idx()[1])
    column = cutlass.Int32(cute.arch.thread_idx()[0])
    load = (x.iterator + row * cutlass.Int32(x.layout.stride[0]) + column * cutlass.Int32(x.layout.stride[1])).load()
    value = load * factor + cutlass.Float32(cutlass.Int32(offset))
    (out.iterator + row * cutlass.Int32(out.layout.stride[0]) + column * cutlass.Int32(out.layout.stride[1])).store(
        cutlass.Float32(value)
    )


@cute.kernel
def _helion_total(x, out, _BLOCK: cutlass.Constexpr):
    """The sum of each row of 256 elements, one warp for each row; the step of the loop is a constant."""
    row = cutlass.Int32(cute.arch.block_idx()[0]) * 4 + cutlass.Int32(cute.arch.thread_idx()[1])
    total = cutlass.Float32(0)
    for start in range(cutlass.Int32(0), cutlass.Int32(256), cutlass.Int32(_BLOCK)):
        column = start + cutlass.Int32(cute.arch.thread_idx()[0])
        total = (
            total
            + (x.iterator + row * cutlass.Int32(x.layout.stride[0]) + column * cutlass.Int32(x.layout.stride[1])).load()
        )
    for distance in (16, 8, 4, 2, 1):
        total = total + cute.arch.shuffle_sync_bfly(total, offset=distance)
    if cutlass.Int32(cute.arch.thread_idx()[0]) == 0:
        (out.iterator + row * cutlass.Int32(out.layout.stride[0])).store(total)


@cute.kernel
def _helion_marked(x, out):
    """out = 2 * x by one block; Helion's marks (PDL, blocks for each multiprocessor) are set on the kernel."""
    place = cutlass.Int32(cute.arch.thread_idx()[0])
    (out.iterator + place).store((x.iterator + place).load() * cutlass.Float32(2))


_helion_marked._helion_cute_use_pdl = True
_helion_marked._helion_cute_min_blocks_per_mp = 2


@cute.kernel
def _helion_clustered(x, out):
    """out = x by two blocks of a cluster along the second axis."""
    place = cutlass.Int32(cute.arch.block_idx()[1]) * 128 + cutlass.Int32(cute.arch.thread_idx()[0])
    (out.iterator + place).store((x.iterator + place).load())


_helion_clustered._helion_cute_cluster_shape = (1, 2, 1)


@cute.kernel
def _helion_turned(x, out):
    """out = x reversed, 16384 elements by one block, through 64 KiB of shared memory that the code allocates."""
    room = cute.arch.alloc_smem(cutlass.Float32, 16384, alignment=128)
    kept = cute.make_tensor(room, cute.make_layout(16384))
    thread = cutlass.Int32(cute.arch.thread_idx()[0])
    for start in range(cutlass.Int32(0), cutlass.Int32(16384), cutlass.Int32(1024)):
        kept[start + thread] = (x.iterator + start + thread).load()
    cute.arch.sync_threads()
    for start in range(cutlass.Int32(0), cutlass.Int32(16384), cutlass.Int32(1024)):
        (out.iterator + start + thread).store(kept[cutlass.Int32(16383) - start - thread])


@cute.kernel
def _helion_operands(x, y, out, atom_a, tensor_a, atom_b, tensor_b, atom_d, tensor_d):
    """Has the parameters that the wrapper plans of one matmul add, and only prefetches the tensor maps."""
    cute.nvgpu.cpasync.prefetch_descriptor(atom_a)
    cute.nvgpu.cpasync.prefetch_descriptor(atom_b)
    cute.nvgpu.cpasync.prefetch_descriptor(atom_d)


_helion_operands._helion_cute_wrapper_plans = [
    {
        "kind": "tcgen05_ab_tma",
        "bm": 128,
        "bn": 128,
        "bk": 64,
        "cluster_m": 1,
        "cluster_n": 1,
        "ab_stage_count": 2,
        "input_dtype": "cutlass.BFloat16",
        "acc_dtype": "cutlass.Float32",
        "m_size": 512,
        "n_size": 512,
        "k_total_size": 256,
        "kernel_args": ["atom_a", "tensor_a", "atom_b", "tensor_b"],
        "lhs_idx": 0,
        "rhs_idx": 1,
    },
    {
        "kind": "tcgen05_d_tma",
        "bm": 128,
        "bn": 128,
        "c_stage_count": 2,
        "output_dtype": "cutlass.BFloat16",
        "kernel_args": ["atom_d", "tensor_d"],
        "d_idx": 2,
    },
]


def scale(x, out, *, _launcher):
    """Launch in the way of Helion's host functions."""
    _launcher(_helion_scale, (x.shape[0] // _ROWS,), x, out, 2.5, 3, block=(64, _ROWS, 1))


def total(x, out, *, _launcher):
    _launcher(_helion_total, (x.shape[0] // 4,), x, out, 32, block=(32, 4))


def marked(x, out, *, _launcher):
    _launcher(_helion_marked, (1,), x, out, block=(128,), cute_compile_options="--generate-line-info")


def clustered(x, out, *, _launcher):
    _launcher(_helion_clustered, (1, 2), x, out, block=(128, 1, 1))


def turned(x, out, *, _launcher):
    _launcher(_helion_turned, (1,), x, out, block=(1024, 1, 1))


def operands(x, y, out, *, _launcher):
    _launcher(_helion_operands, (16,), x, y, out, block=(32, 6, 1))
