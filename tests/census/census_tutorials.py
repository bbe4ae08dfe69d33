"""What Triton's tutorials compute, in kernels of our own: addition, softmax, products, dropout, layer norm, groups."""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from census_kinds import close, kind, normal
from torch.nn import functional
from triton.language.extra import libdevice
from triton.runtime.driver import driver
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@kind("tutorial", "vector addition")
def vector_addition():
    x, y = normal(98_432), normal(98_432, seed=1)
    out = torch.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel(), BLOCK=1024)
    assert torch.equal(out, x + y)


@triton.jit
def softmax_kernel(out, x, x_step, out_step, rows, columns, BLOCK: tl.constexpr, num_stages: tl.constexpr):
    """Each program takes every num_programs-th row."""
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=num_stages):
        at = tl.arange(0, BLOCK)
        values = tl.load(x + row * x_step + at, mask=at < columns, other=-float("inf"))
        grown = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * out_step + at, grown / tl.sum(grown, axis=0), mask=at < columns)


@kind("tutorial", "persistent softmax, its grid sized by occupancy")
def softmax():
    x = normal(183, 781)
    out = torch.empty_like(x)
    facts = driver.active.utils.get_device_properties(driver.active.get_active_torch_device().index)
    block = triton.next_power_of_2(x.shape[1])
    arguments = (out, x, x.stride(0), out.stride(0), *x.shape)
    kernel = softmax_kernel.warmup(*arguments, BLOCK=block, num_stages=2, num_warps=8, grid=(1,))
    kernel._init_handles()
    by_registers = facts["max_num_regs"] // (kernel.n_regs * facts["warpSize"] * 8)
    programs = facts["multiprocessor_count"] * min(by_registers, facts["max_shared_mem"] // kernel.metadata.shared)
    softmax_kernel[(min(programs, x.shape[0]), 1, 1)](*arguments, block, 2)
    close(out, torch.softmax(x.double(), -1))


@triton.jit
def leaky(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.autotune(
    configs=[
        triton.Config({"BM": 64, "BN": 64, "BK": 32, "GROUP": 8}, num_stages=3, num_warps=8),
        triton.Config({"BM": 32, "BN": 64, "BK": 32, "GROUP": 4}, num_stages=4, num_warps=4),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def product_kernel(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    across = tl.cdiv(N, BN)
    first = program // (GROUP * across) * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    row = first + program % (GROUP * across) % height
    column = program % (GROUP * across) // height
    tl.assume(row >= 0)
    tl.assume(column >= 0)
    rows = (row * BM + tl.arange(0, BM)) % M
    columns = (column * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    left = a + rows[:, None] * am + inner[None, :] * ak
    right = b + inner[:, None] * bk + columns[None, :] * bn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        x = tl.load(left, mask=inner[None, :] < K - step * BK, other=0.0)
        y = tl.load(right, mask=inner[:, None] < K - step * BK, other=0.0)
        total = tl.dot(x, y, total)
        left += BK * ak
        right += BK * bk
    if ACTIVATION == "leaky":
        total = leaky(total)
    rows = row * BM + tl.arange(0, BM)
    columns = column * BN + tl.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * cm + columns[None, :] * cn, total.to(c.dtype.element_ty), mask=inside)


def product(a, b, activation=""):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    sizes = (a.shape[0], b.shape[1], a.shape[1])
    steps = (*a.stride(), *b.stride(), *c.stride())
    product_kernel[lambda meta: (triton.cdiv(sizes[0], meta["BM"]) * triton.cdiv(sizes[1], meta["BN"]),)](
        a, b, c, *sizes, *steps, ACTIVATION=activation
    )
    return c


@kind("tutorial", "matrix product by groups of tiles, tuned")
def matrix_product():
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 1e-2), (torch.bfloat16, 6e-2)):
        a, b = normal(150, 170, dtype=dtype) / 4, normal(170, 200, dtype=dtype, seed=1) / 4
        close(product(a, b), a.double() @ b.double(), rtol=tolerance, atol=tolerance)
    a, b = normal(64, 64), normal(64, 64, seed=1).T
    close(product(a, b, "leaky"), functional.leaky_relu(a.double() @ b.double()), rtol=1e-4, atol=1e-4)


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    kept = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(kept, values / (1 - p), 0.0), mask=at < n)


def philox(seed, index):
    """Philox 4x32 with ten rounds, the first word: the generator that Triton names."""
    words, key, low = [index, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32], 0xFFFFFFFF
    for _ in range(10):
        first, second = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [second >> 32 ^ words[1] ^ key[0], second & low, first >> 32 ^ words[3] ^ key[1], first & low]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return words[0]


@kind("tutorial", "dropout from a seed")
def dropout():
    x = normal(1000).abs() + 1
    out = torch.empty_like(x)
    dropout_kernel[(2,)](x, out, 1000, 0.5, 123, BLOCK=512)
    words = [philox(123, index) for index in range(1000)]
    signed = [word - 2**32 if word >= 2**31 else word for word in words]
    uniform = [(-one - 1 if one < 0 else one) * 4.6566127342e-10 for one in signed]
    expected = torch.where(torch.tensor(uniform) > 0.5, x * 2, 0.0)
    close(out, expected)
    assert 400 < int((out != 0).sum()) < 600


@triton.jit
def norm_forward_kernel(x, y, w, b, means, scales, step, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * step + at, mask=at < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    spread = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * step + at, mask=at < n, other=0.0).to(tl.float32)
        value = tl.where(at < n, value - mean, 0.0)
        spread += value * value
    scale = 1 / tl.sqrt(tl.sum(spread, axis=0) / n + eps)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * step + at, mask=at < n, other=0.0).to(tl.float32)
        weight, bias = tl.load(w + at, mask=at < n), tl.load(b + at, mask=at < n)
        tl.store(y + row * step + at, (value - mean) * scale * weight + bias, mask=at < n)


@triton.jit
def norm_backward_kernel(dx, dy, dw, db, x, w, means, scales, lock, step, n, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """Gradients of weight and bias are gathered in GROUPS rows, each under a lock of its own."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    group = row % GROUPS
    lock += group
    count = lock + GROUPS
    value = tl.load(x + row * step + at, mask=inside, other=0).to(tl.float32)
    change = tl.load(dy + row * step + at, mask=inside, other=0).to(tl.float32)
    weight = tl.load(w + at, mask=inside).to(tl.float32)
    scale = tl.load(scales + row)
    hat = tl.where(inside, (value - tl.load(means + row)) * scale, 0.0)
    weighted = tl.where(inside, weight * change, 0.0)
    first = tl.sum(hat * weighted, axis=0) / n
    second = tl.sum(weighted, axis=0) / n
    tl.store(dx + row * step + at, (weighted - (hat * first + second)) * scale, mask=inside)
    part_w, part_b = change * hat, change
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    seen = tl.load(count)
    if seen == 0:
        tl.atomic_xchg(count, 1)
    else:
        part_w += tl.load(dw + group * n + at, mask=inside)
        part_b += tl.load(db + group * n + at, mask=inside)
    tl.store(dw + group * n + at, part_w, mask=inside)
    tl.store(db + group * n + at, part_b, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def norm_sum_kernel(parts, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, M, BM):
        rows = start + tl.arange(0, BM)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        total += tl.load(parts + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
    tl.store(out + columns, tl.sum(total, axis=0), mask=columns < N)


@kind("tutorial", "layer norm forward")
def layer_norm_forward():
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 1e-2)):
        x, w, b = normal(7, 1151, dtype=dtype), normal(1151, dtype=dtype, seed=1), normal(1151, dtype=dtype, seed=2)
        y, means, scales = torch.empty_like(x), torch.empty(7), torch.empty(7)
        norm_forward_kernel[(7,)](x, y, w, b, means, scales, x.stride(0), 1151, 1e-5, BLOCK=512, num_warps=8)
        expected = functional.layer_norm(x.double(), (1151,), w.double(), b.double(), 1e-5)
        close(y, expected, rtol=tolerance, atol=tolerance)


@kind("tutorial", "layer norm backward, sums under locks")
def layer_norm_backward():
    rows, n, groups = 33, 500, 4
    leaves = [normal(rows, n), normal(n, seed=1), normal(n, seed=2)]
    x, w, b = (one.double().requires_grad_() for one in leaves)
    dy = normal(rows, n, seed=3)
    functional.layer_norm(x, (n,), w, b, 1e-5).backward(dy.double())
    mean = leaves[0].mean(-1)
    scale = torch.rsqrt(leaves[0].var(-1, correction=0) + 1e-5)
    dx = torch.empty(rows, n)
    dw, db, lock = torch.zeros(groups, n), torch.zeros(groups, n), torch.zeros(2 * groups, dtype=torch.int32)
    norm_backward_kernel[(rows,)](
        dx, dy, dw, db, leaves[0], leaves[1], mean, scale, lock, n, n, GROUPS=groups, BLOCK=512, num_warps=4
    )
    close(dx, x.grad, rtol=1e-3, atol=1e-4)
    for parts, expected in ((dw, w.grad), (db, b.grad)):
        total = torch.empty(n)
        norm_sum_kernel[(triton.cdiv(n, 128),)](parts, total, groups, n, BM=32, BN=128)
        close(total, expected, rtol=1e-3, atol=1e-3)


@triton.jit
def arcsine_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, libdevice.asin(tl.load(x + at, mask=at < n)), mask=at < n)


@kind("tutorial", "a function of libdevice")
def extern_function():
    x = torch.rand(98_432, generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(x)
    arcsine_kernel[(97,)](x, out, x.numel(), BLOCK=1024)
    close(out, torch.asin(x.double()))


@triton.jit
def groups_kernel(addresses, sizes, steps, count, PROGRAMS, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Products of several sizes by a fixed number of programs; the operands' addresses lie in memory."""
    tile = tl.program_id(0)
    before = 0
    for group in range(count):
        m, n, k = tl.load(sizes + group * 3), tl.load(sizes + group * 3 + 1), tl.load(sizes + group * 3 + 2)
        across = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * across
        while tile >= before and tile < before + tiles:
            a = tl.load(addresses + group * 3).to(tl.pointer_type(tl.float16))
            b = tl.load(addresses + group * 3 + 1).to(tl.pointer_type(tl.float16))
            c = tl.load(addresses + group * 3 + 2).to(tl.pointer_type(tl.float16))
            row, column = (tile - before) // across, (tile - before) % across
            rows, columns, inner = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN), tl.arange(0, BK)
            a_step, b_step, c_step = (
                tl.load(steps + group * 3), tl.load(steps + group * 3 + 1), tl.load(steps + group * 3 + 2)
            )  # fmt: skip
            left = a + rows[:, None] * a_step + inner[None, :]
            right = b + inner[:, None] * b_step + columns[None, :]
            total = tl.zeros((BM, BN), dtype=tl.float32)
            for _ in range(tl.cdiv(k, BK)):
                tl.multiple_of(left, [16, 16])
                total += tl.dot(tl.load(left), tl.load(right))
                left += BK
                right += BK * b_step
            tl.store(c + rows[:, None] * c_step + columns[None, :], total.to(tl.float16))
            tile += PROGRAMS
        before += tiles


@kind("tutorial", "grouped matrix products")
def grouped_products():
    shapes = [(128, 64, 96), (64, 64, 64), (32, 96, 32)]
    half = {"dtype": torch.float16}
    made = [
        (normal(m, k, **half, seed=i), normal(k, n, **half, seed=i + 10), torch.empty(m, n, **half))
        for i, (m, n, k) in enumerate(shapes)
    ]
    addresses = torch.tensor([one.data_ptr() for group in made for one in group])
    sizes = torch.tensor([size for shape in shapes for size in shape], dtype=torch.int32)
    steps = torch.tensor([one.stride(0) for group in made for one in group], dtype=torch.int32)
    groups_kernel[(3,)](addresses, sizes, steps, len(shapes), 3, BM=32, BN=32, BK=32)
    for a, b, c in made:
        close(c, a.double() @ b.double(), rtol=2e-2, atol=2e-2)


@triton.jit
def persistent_kernel(
    a, b, c, M, N, K, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    """A fixed number of programs walks over all tiles, through tensor descriptors."""
    down, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), down * across, PROGRAMS, flatten=True):
        first = tile // (GROUP * across) * GROUP
        height = min(down - first, GROUP)
        row = first + tile % height
        column = tile % (GROUP * across) // height
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            x = a.load([row * BM, step * BK])
            y = b.load([column * BN, step * BK])
            total = tl.dot(x, y.T, total)
        c.store([row * BM, column * BN], total.to(c.dtype))


@kind("tutorial", "persistent product through tensor descriptors")
def persistent_product():
    m, n, k = 150, 136, 88
    a, b = normal(m, k, dtype=torch.float16) / 4, normal(n, k, dtype=torch.float16, seed=1) / 4
    c = torch.zeros(m, n, dtype=torch.float16)
    described = [
        TensorDescriptor.from_tensor(one, block) for one, block in ((a, [32, 32]), (b, [64, 32]), (c, [32, 64]))
    ]
    persistent_kernel[(4,)](*described, m, n, k, PROGRAMS=4, BM=32, BN=64, BK=32, GROUP=3)
    close(c, a.double() @ b.double().T, rtol=1e-2, atol=1e-2)
