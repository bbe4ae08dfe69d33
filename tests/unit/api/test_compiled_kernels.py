"""What ``warmup`` and ``compiled`` give, and programs written to what Triton's gives: those of its tutorials' kinds."""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportOperatorIssue=false

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")
pytest.importorskip("torch", reason="these programs are written with torch")

import torch
import triton
import triton.language as tl
from triton.runtime.driver import driver
from triton.runtime.jit import MockTensor
from triton.tools.tensor_descriptor import TensorDescriptor

import silo
from silo.commands.build_bundle import build_bundle
from silo.errors import ArgumentError
from silo.settings import override


def softmax_of_rows(out, x, x_step, out_step, rows, columns, BLOCK: tl.constexpr, num_stages: tl.constexpr):
    first, step = tl.program_id(0), tl.num_programs(0)
    for row in tl.range(first, rows, step, num_stages=num_stages):
        at = tl.arange(0, BLOCK)
        values = tl.load(x + row * x_step + at, mask=at < columns, other=-float("inf"))
        grown = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * out_step + at, grown / tl.sum(grown, axis=0), mask=at < columns)


WRAPPED = silo.kernel(triton.jit(softmax_of_rows))


def is_hip():
    return driver.active.get_current_target().backend == "hip"


def softmax(kernel, x):
    """Sizes its grid by occupancy, as a program for GPUs does, and launches the compiled object."""
    rows, columns = x.shape
    facts = driver.active.utils.get_device_properties(driver.active.get_active_torch_device().index)
    processors, registers = facts["multiprocessor_count"], facts["max_num_regs"]
    memory, width = facts["max_shared_mem"], facts["warpSize"]
    block, warps = triton.next_power_of_2(columns), 8
    stages = 4 if memory > 200000 else 2
    out = torch.empty_like(x)
    compiled = kernel.warmup(
        out, x, x.stride(0), out.stride(0), rows, columns, BLOCK=block, num_stages=stages, num_warps=warps, grid=(1,)
    )
    compiled._init_handles()
    needed, shared = compiled.n_regs, compiled.metadata.shared
    assert not is_hip()
    occupancy = min(registers // (needed * width * warps), memory // shared)
    programs = min(processors * occupancy, rows)
    compiled[(programs, 1, 1)](out, x, x.stride(0), out.stride(0), rows, columns, block, stages)
    return out


@pytest.mark.parametrize("kernel", [triton.jit(softmax_of_rows), WRAPPED], ids=["triton", "silo"])
@pytest.mark.parametrize("shape", [(183, 781), (3, 64)])
def test_a_softmax_that_sizes_its_grid_by_occupancy(kernel, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(softmax(kernel, x), torch.softmax(x, axis=1))


def described(grid, kernel, arguments):
    """Metadata of a launch for a profiler, made from the compiled kernel's metadata and the arguments."""
    size = arguments["M"] * arguments["N"] * arguments["K"]
    return {"name": f"{kernel.name} [M={arguments['M']}]", "flops": 2 * size, "grid": grid}


def product_of_tiles(
    a, b, c, M, N, K, a_row, a_column, b_row, b_column, c_row, c_column,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(axis=0), tiles, PROGRAMS, flatten=True):
        across = tl.cdiv(N, BN)
        top = tile // (GROUP * across) * GROUP
        height = min(tl.cdiv(M, BM) - top, GROUP)
        row, column = top + tile % height, tile % (GROUP * across) // height
        rows, columns, inner = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN), tl.arange(0, BK)
        safe_rows = tl.max_contiguous(tl.multiple_of(tl.where(rows < M, rows, 0), BM), BM)
        safe_columns = tl.max_contiguous(tl.multiple_of(tl.where(columns < N, columns, 0), BN), BN)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            at = step * BK + inner
            left = tl.load(a + safe_rows[:, None] * a_row + at[None, :] * a_column, mask=at[None, :] < K, other=0.0)
            right = tl.load(b + at[:, None] * b_row + safe_columns[None, :] * b_column, mask=at[:, None] < K, other=0.0)
            total = tl.dot(left, right, total)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(c + rows[:, None] * c_row + columns[None, :] * c_column, total.to(c.dtype.element_ty), mask=inside)


def set_blocks(arguments):
    """The hook of a config that sets the blocks of descriptors made with a block of nothing in particular."""
    rows, columns, inner = arguments["BM"], arguments["BN"], arguments["BK"]
    arguments["a"].block_shape = [rows, inner]
    arguments["b"].block_shape = [columns, inner]
    if arguments["SPLIT"]:
        arguments["c"].block_shape = [rows, columns // 2]
    else:
        arguments["c"].block_shape = [rows, columns]


def product_of_descriptors(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, PROGRAMS: tl.constexpr
):
    kind = c.dtype
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(axis=0), tiles, PROGRAMS):
        top, left = tile // tl.cdiv(N, BN) * BM, tile % tl.cdiv(N, BN) * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            total = tl.dot(a.load([top, step * BK]), b.load([left, step * BK]).T, total)
        if SPLIT:
            halves = tl.permute(tl.reshape(total, (BM, 2, BN // 2)), (0, 2, 1))
            first, second = tl.split(halves)
            c.store([top, left], first.to(kind))
            c.store([top, left + BN // 2], second.to(kind))
        else:
            c.store([top, left], total.to(kind))


def product_of_made_descriptors(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr
):
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    out = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(axis=0), tiles, PROGRAMS):
        row, column = tile // tl.cdiv(N, BN) * BM, tile % tl.cdiv(N, BN) * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            total = tl.dot(left.load([row, step * BK]), right.load([column, step * BK]).T, total)
        out.store([row, column], total.to(c.dtype.element_ty))


def same(function):
    return function


def programs_here():
    return driver.active.utils.get_device_properties(driver.active.get_current_device())["multiprocessor_count"]


M, N, K = 96, 80, 64


@pytest.fixture
def matrices():
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=generator).half() for shape in ((M, K), (N, K)))


@pytest.mark.parametrize("wrap", [same, silo.kernel], ids=["triton", "silo"])
def test_a_persistent_product(wrap, matrices):
    a, b = matrices[0], matrices[1].T
    c = torch.empty((M, N), dtype=a.dtype)
    kernel = wrap(triton.jit(product_of_tiles, launch_metadata=described))
    config = {"BM": 32, "BN": 32, "BK": 32, "GROUP": 4, "PROGRAMS": programs_here(), "num_stages": 3, "num_warps": 8}
    arguments = (a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride())
    compiled = kernel.warmup(*arguments, **config, grid=(1,))
    assert (compiled.metadata.num_warps, compiled.metadata.num_ctas) == (8, 1)
    kernel[lambda meta: (min(programs_here(), triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"])),)](
        *arguments, **config
    )
    torch.testing.assert_close(c.float(), matrices[0].float() @ matrices[1].T.float(), atol=2e-2, rtol=1e-2)


@pytest.mark.parametrize("wrap", [same, silo.kernel], ids=["triton", "silo"])
def test_a_persistent_product_over_descriptors_whose_blocks_a_hook_sets(wrap, matrices):
    a, b = matrices
    c = torch.empty((M, N), dtype=a.dtype)
    configs = [
        triton.Config(
            {"BM": 32, "BN": BN, "BK": 32, "SPLIT": SPLIT}, num_stages=stages, num_warps=4, pre_hook=set_blocks
        )
        for BN in (16, 32)
        for SPLIT in (True, False)
        for stages in [2]
    ]
    jitted = triton.jit(product_of_descriptors, launch_metadata=described)
    kernel = wrap(triton.autotune(configs=configs, key=["M", "N", "K"])(jitted))
    nothing = [1, 1]
    descriptors = [TensorDescriptor(t, t.shape, t.stride(), nothing) for t in (a, b, c)]

    def grid(meta):
        return (min(programs_here(), triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"])),)

    with override(tune="off"):
        kernel[grid](*descriptors, M, N, K, PROGRAMS=programs_here())
    torch.testing.assert_close(c.float(), a.float() @ b.T.float(), atol=2e-2, rtol=1e-2)


@pytest.mark.parametrize("wrap", [same, silo.kernel], ids=["triton", "silo"])
def test_a_persistent_product_over_descriptors_made_in_the_kernel(wrap, matrices):
    a, b = matrices
    c = torch.empty((M, N), dtype=a.dtype)

    def allocate(size: int, alignment: int, stream):
        return torch.empty(size, device="cpu", dtype=torch.int8)

    triton.set_allocator(allocate)
    kernel = wrap(triton.jit(product_of_made_descriptors))
    kernel[(programs_here(),)](a, b, c, M, N, K, BM=32, BN=16, BK=32, PROGRAMS=programs_here(), num_warps=4)
    torch.testing.assert_close(c.float(), a.float() @ b.T.float(), atol=2e-2, rtol=1e-2)


def test_members_of_a_compiled_kernel():
    x = torch.randn(4, 64)
    compiled = WRAPPED.compiled(torch.empty_like(x), x, 64, 64, 4, 64, BLOCK=64, num_stages=2, num_warps=2, grid=(1,))
    assert compiled.name.startswith("silo_softmax_of_rows_")
    assert compiled.name in compiled.asm["c"]
    assert "tt.store" in compiled.asm["ttir"]
    assert compiled.asm["so"] == compiled.kernel
    assert list(compiled.asm) == ["ttir", "c", "so"]
    assert compiled.asm.keys() == {"ttir", "c", "so"}
    assert "ptx" not in compiled.asm
    with pytest.raises(KeyError):
        compiled.asm["cubin"]
    assert (compiled.n_regs, compiled.n_spills) == (1, 0)
    assert compiled.n_max_threads >= 1024
    assert compiled.metadata.target.backend == "cpu"
    assert compiled.metadata._asdict()["num_ctas"] == 1
    assert WRAPPED.run(x, x, 64, 64, 4, 64, BLOCK=64, num_stages=2, grid=(1,), warmup=True).name
    assert "compiled softmax_of_rows" in repr(compiled)


@pytest.mark.parametrize(
    "like", [torch.float32, tl.float32, MockTensor(torch.float32)], ids=["torch", "triton", "mock"]
)
def test_a_dtype_stands_for_an_aligned_array(like):
    x = torch.randn(4, 64)
    real = WRAPPED.warmup(torch.empty_like(x), x, 64, 64, 4, 64, BLOCK=64, num_stages=2, grid=(1,))
    assert WRAPPED.warmup(like, like, 64, 64, 4, 64, BLOCK=64, num_stages=2, grid=(1,)).hash == real.hash
    with pytest.raises(ArgumentError, match=r"in place of an array, and not torch\.complex64"):
        WRAPPED.warmup(torch.complex64, like, 64, 64, 4, 64, BLOCK=64, num_stages=2, grid=(1,))


SCALE = """
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [128]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@doubled.cases(n=[256])
def _(n, make):
    return silo.Case(args=(make.normal(n), make.empty(n), n))
"""


def test_a_bundles_kernel_has_what_the_bundle_holds(tmp_path):
    (tmp_path / "kernels.py").write_text(SCALE)
    with override(home=tmp_path / "store", tune="off"):
        build_bundle([tmp_path / "kernels.py"], tmp_path / "k.silo", targets=["cpu"], tune="off")
        x = np.ones(256, np.float32)
        out = np.zeros_like(x)
        compiled = silo.load(tmp_path / "k.silo").doubled.compiled(x, out, 256)
    assert list(compiled.asm) == ["c", "ttir", "so"]
    assert compiled.config.as_dict() == {"BLOCK": 128}
    compiled[(2, 1, 1)](x, out, 256)
    assert (out == 2).all()
