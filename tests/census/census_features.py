"""Features of the language, one kernel each: scans, sorts, reductions by own functions, control flow, calls, types."""
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

import itertools

import torch
import triton
import triton.language as tl
from census_kinds import close, kind, normal


def integers(*shape, low=-1000, high=1000, dtype=torch.int32, seed=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@triton.jit
def tile_at(M: tl.constexpr, N: tl.constexpr):
    return tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]


# -- scans -----------------------------------------------------------------------------------------------------------


@triton.jit
def scan_kernel(x, sums, products, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    at = tile_at(M, N)
    values = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(values, AXIS, reverse=REVERSE))
    tl.store(products + at, tl.cumprod(values, AXIS, reverse=REVERSE))


@kind("feature", "cumulative sums and products")
def scans():
    x = normal(16, 32) / 2 + 1
    for axis, reverse in itertools.product((0, 1), (False, True)):
        sums, products = torch.empty_like(x), torch.empty_like(x)
        scan_kernel[(1,)](x, sums, products, M=16, N=32, AXIS=axis, REVERSE=reverse)
        given = x.double().flip(axis) if reverse else x.double()
        for found, expected in ((sums, given.cumsum(axis)), (products, given.cumprod(axis))):
            close(found, expected.flip(axis) if reverse else expected)


@triton.jit
def recur(decay, value, next_decay, next_value):
    return decay * next_decay, value * next_decay + next_value


@triton.jit
def linear_scan_kernel(decay, value, out, N: tl.constexpr):
    at = tl.arange(0, N)
    _, states = tl.associative_scan((tl.load(decay + at), tl.load(value + at)), 0, recur)
    tl.store(out + at, states)


@kind("feature", "associative scan of pairs: a linear recurrence")
def linear_scan():
    decay, value = torch.rand(128, generator=torch.Generator().manual_seed(0)), normal(128)
    out = torch.empty(128)
    linear_scan_kernel[(1,)](decay, value, out, N=128)
    state, expected = 0.0, []
    for one, other in zip(decay.double().tolist(), value.double().tolist(), strict=True):
        state = state * one + other
        expected.append(state)
    close(out, torch.tensor(expected))


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def running_largest_kernel(x, out, M: tl.constexpr, N: tl.constexpr):
    at = tile_at(M, N)
    tl.store(out + at, tl.associative_scan(tl.load(x + at), 1, larger))


@kind("feature", "associative scan by a function")
def running_largest():
    x, out = integers(8, 64), torch.empty(8, 64, dtype=torch.int32)
    running_largest_kernel[(1,)](x, out, M=8, N=64)
    assert torch.equal(out, x.cummax(1).values)


# -- reductions ------------------------------------------------------------------------------------------------------


@triton.jit
def arg_kernel(x, largest, largest_at, least, least_at, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    values = tl.load(x + tile_at(M, N))
    top, top_at = tl.max(values, AXIS, return_indices=True)
    low, low_at = tl.min(values, AXIS, return_indices=True)
    at = tl.arange(0, N if AXIS == 0 else M)
    tl.store(largest + at, top)
    tl.store(largest_at + at, top_at)
    tl.store(least + at, low)
    tl.store(least_at + at, low_at)


@kind("feature", "argmax and argmin, the first of equals")
def arg_extremes():
    x = integers(16, 32, low=0, high=6).float()
    for axis in (0, 1):
        size = 32 if axis == 0 else 16
        top, low = torch.empty(size), torch.empty(size)
        top_at, low_at = torch.empty(size, dtype=torch.int32), torch.empty(size, dtype=torch.int32)
        arg_kernel[(1,)](x, top, top_at, low, low_at, M=16, N=32, AXIS=axis)
        for found, at, numpy_arg, extreme in (
            (top, top_at, x.numpy().argmax(axis), x.amax(axis)), (low, low_at, x.numpy().argmin(axis), x.amin(axis))
        ):  # fmt: skip
            assert torch.equal(found, extreme)
            assert at.tolist() == numpy_arg.tolist()


@triton.jit
def wrap_add(a, b):
    return (a + b) % 7


@triton.jit
def reduce_kernel(x, modulo, parity, every, some, N: tl.constexpr):
    values = tl.load(x + tl.arange(0, N))
    tl.store(modulo, tl.reduce(values, 0, wrap_add))
    tl.store(parity, tl.xor_sum(values, 0))
    tl.store(every, tl.min((values > 0).to(tl.int32), 0))
    tl.store(some, tl.max((values > 0).to(tl.int32), 0))


@kind("feature", "reductions by own functions")
def reductions():
    x = integers(128, low=0, high=100)
    found = [torch.zeros(1, dtype=torch.int32) for _ in range(4)]
    reduce_kernel[(1,)](x, *found, N=128)
    parity = 0
    for one in x.tolist():
        parity ^= one
    assert [int(one) for one in found] == [int(x.sum()) % 7, parity, int((x > 0).all()), int((x > 0).any())]


@triton.jit
def welford(mean_a, spread_a, count_a, mean_b, spread_b, count_b):
    change = mean_b - mean_a
    count = count_a + count_b
    share = tl.where(count == 0.0, 0.0, count_b / count)
    return mean_a + change * share, spread_a + spread_b + change * change * count_a * share, count


@triton.jit
def welford_kernel(x, mean, variance, M: tl.constexpr, N: tl.constexpr):
    values = tl.load(x + tile_at(M, N))
    zeros = tl.zeros((M, N), tl.float32)
    means, spreads, counts = tl.reduce((values, zeros, zeros + 1), 1, welford)
    tl.store(mean + tl.arange(0, M), means)
    tl.store(variance + tl.arange(0, M), spreads / counts)


@kind("feature", "reduction of three values: mean and variance in one pass")
def welford_reduction():
    x = normal(8, 128) + 100
    mean, variance = torch.empty(8), torch.empty(8)
    welford_kernel[(1,)](x, mean, variance, M=8, N=128)
    close(mean, x.double().mean(1))
    close(variance, x.double().var(1, correction=0), rtol=1e-3)


# -- order -----------------------------------------------------------------------------------------------------------


@triton.jit
def sort_kernel(x, up, down, best, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    at = tile_at(M, N)
    values = tl.load(x + at)
    tl.store(up + at, tl.sort(values))
    tl.store(down + at, tl.sort(values, descending=True))
    tl.store(best + tile_at(M, K), tl.topk(values, K))


@kind("feature", "sort and topk")
def sort():
    for x in (normal(4, 32), integers(4, 32, dtype=torch.int64)):
        up, down, best = torch.empty_like(x), torch.empty_like(x), torch.empty(4, 8, dtype=x.dtype)
        sort_kernel[(1,)](x, up, down, best, M=4, N=32, K=8)
        assert torch.equal(up, x.sort(1).values)
        assert torch.equal(down, x.sort(1, descending=True).values)
        assert torch.equal(best.sort(1).values, x.topk(8).values.sort(1).values)


@triton.jit
def flip_kernel(x, out, M: tl.constexpr, N: tl.constexpr):
    at = tile_at(M, N)
    tl.store(out + at, tl.flip(tl.load(x + at), 1))


@kind("feature", "flip")
def flip():
    x, out = normal(8, 32), torch.empty(8, 32)
    flip_kernel[(1,)](x, out, M=8, N=32)
    assert torch.equal(out, x.flip(1))


# -- control flow ----------------------------------------------------------------------------------------------------


@triton.jit
def collatz_kernel(x, out, n):
    program = tl.program_id(0)
    if program >= n:
        return
    value = tl.load(x + program)
    steps = 0
    while value != 1:
        if value % 2 == 0:  # noqa: SIM108  # a branch is what is asked for
            value = value // 2
        else:
            value = 3 * value + 1
        steps += 1
    tl.store(out + program, steps)


@kind("feature", "while loops, branches and early return")
def collatz():
    x, out = torch.arange(1, 30), torch.zeros(29, dtype=torch.int32)
    collatz_kernel[(40,)](x, out, 29)

    def steps(value):
        return 0 if value == 1 else 1 + steps(value // 2 if value % 2 == 0 else 3 * value + 1)

    assert out.tolist() == [steps(value) for value in x.tolist()]


@triton.jit
def nested_kernel(x, out, rows, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        part = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, columns, BLOCK):
            inside = start + at < columns
            part += tl.load(x + row * columns + start + at, mask=inside, other=0.0)
        if row % 2 == 0:
            total += part
        else:
            total -= part
    tl.store(out, tl.sum(total, 0))


@kind("feature", "nested loops that carry tensors, with branches inside")
def nested():
    x, out = normal(7, 100), torch.empty(1)
    nested_kernel[(1,)](x, out, 7, 100, BLOCK=32)
    signs = torch.tensor([1.0, -1.0] * 4)[:7, None]
    close(out, (x.double() * signs).sum().reshape(1), atol=1e-4)


@triton.jit(noinline=True)
def helper(pointer, at, scale):
    value = tl.load(pointer + at)
    if value < 0:
        return 0.0, at
    return value * scale, at + 1


@triton.jit
def calling_kernel(x, out, places, scale):
    value, place = helper(x, tl.program_id(0), scale)
    tl.store(out + tl.program_id(0), value)
    tl.store(places + tl.program_id(0), place)


@kind("feature", "functions that are not inlined")
def calls():
    x, out, places = normal(64), torch.empty(64), torch.empty(64, dtype=torch.int32)
    calling_kernel[(64,)](x, out, places, 3.0)
    assert torch.equal(out, torch.where(x < 0, 0.0, 3 * x))
    assert torch.equal(places, torch.arange(64) + (x >= 0))


@triton.jit
def square(x):
    return x * x


@triton.jit
def apply_kernel(x, out, function: tl.constexpr, powers: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    value = function(tl.load(x + at))
    for index in tl.static_range(len(powers)):
        tl.store(out + index * N + at, value * powers[index])


@kind("feature", "functions and tuples as constants, static loops")
def constants():
    x, out = normal(32), torch.empty(3, 32)
    apply_kernel[(1,)](x, out, square, (1, 2, 5), N=32)
    close(out, x.double() ** 2 * torch.tensor([[1.0], [2.0], [5.0]]))


# -- products --------------------------------------------------------------------------------------------------------


@triton.jit
def batched_dot_kernel(x, y, out, B: tl.constexpr, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    batch = tl.arange(0, B)[:, None, None]
    left = batch * M * K + tl.arange(0, M)[None, :, None] * K + tl.arange(0, K)[None, None, :]
    right = batch * K * N + tl.arange(0, K)[None, :, None] * N + tl.arange(0, N)[None, None, :]
    both = batch * M * N + tl.arange(0, M)[None, :, None] * N + tl.arange(0, N)[None, None, :]
    tl.store(out + both, tl.dot(tl.load(x + left), tl.load(y + right), input_precision="ieee"))


@kind("feature", "batched dot")
def batched_dot():
    x, y, out = normal(4, 16, 32), normal(4, 32, 16, seed=1), torch.empty(4, 16, 16)
    batched_dot_kernel[(1,)](x, y, out, B=4, M=16, K=32, N=16)
    close(out, x.double() @ y.double())


@triton.jit
def dot_kernel(x, y, out, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr, OUT: tl.constexpr):
    found = tl.dot(tl.load(x + tile_at(M, K)), tl.load(y + tile_at(K, N)), out_dtype=OUT)
    tl.store(out + tile_at(M, N), found)


@kind("feature", "dot of small integers")
def integer_dot():
    x, y = (
        integers(32, 64, low=-128, high=128, dtype=torch.int8),
        integers(64, 16, low=-128, high=128, dtype=torch.int8),
    )
    out = torch.empty(32, 16, dtype=torch.int32)
    dot_kernel[(1,)](x, y, out, M=32, K=64, N=16, OUT=tl.int32)
    assert torch.equal(out.long(), x.long() @ y.long())


@kind("feature", "dot in double precision")
def double_dot():
    x, y = normal(32, 64).double(), normal(64, 16, seed=1).double()
    out = torch.empty(32, 16, dtype=torch.float64)
    dot_kernel[(1,)](x, y, out, M=32, K=64, N=16, OUT=tl.float64)
    close(out, x @ y, rtol=1e-12, atol=1e-12)


@kind("feature", "dot of fp8")
def fp8_dot():
    for dtype in (torch.float8_e5m2, torch.float8_e4m3fn):
        x, y = normal(32, 64).to(dtype), normal(64, 32, seed=1).to(dtype)
        out = torch.empty(32, 32)
        dot_kernel[(1,)](x, y, out, M=32, K=64, N=32, OUT=tl.float32)
        close(out, x.double() @ y.double(), rtol=1e-3, atol=1e-3)


@triton.jit
def scaled_dot_kernel(a, a_scale, b, b_scale, out, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    groups: tl.constexpr = K // 32
    found = tl.dot_scaled(
        tl.load(a + tile_at(M, K)), tl.load(a_scale + tile_at(M, groups)), "e5m2",
        tl.load(b + tile_at(K, N)), tl.load(b_scale + tile_at(N, groups)), "e5m2",
    )  # fmt: skip
    tl.store(out + tile_at(M, N), found)


@kind("feature", "dot with block scales (mxfp8)")
def scaled_dot():
    a, b = normal(32, 64).to(torch.float8_e5m2), normal(64, 32, seed=1).to(torch.float8_e5m2)
    scales = [integers(32, 2, low=120, high=134, dtype=torch.uint8, seed=seed) for seed in (2, 3)]
    out = torch.empty(32, 32)
    scaled_dot_kernel[(1,)](a.view(torch.uint8), scales[0], b.view(torch.uint8), scales[1], out, M=32, K=64, N=32)
    wide = [(2.0 ** (one.double() - 127)).repeat_interleave(32, 1) for one in scales]
    close(out, (a.double() * wide[0]) @ (b.double() * wide[1].T), rtol=1e-3, atol=1e-3)


# -- checks and prints -----------------------------------------------------------------------------------------------


@triton.jit
def asserting_kernel(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    tl.device_assert(values >= 0, "negative")
    tl.store(out + at, tl.sqrt(values))


@kind("feature", "device_assert")
def device_assert():
    x, out = normal(32).abs(), torch.empty(32)
    asserting_kernel[(1,)](x, out, N=32, debug=True)
    close(out, x.double().sqrt())


@triton.jit
def printing_kernel(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    tl.device_print("values", values)
    tl.store(out + at, values + 1)


@kind("feature", "device_print")
def device_print():
    x, out = torch.arange(4.0), torch.empty(4)
    printing_kernel[(1,)](x, out, N=4)
    assert torch.equal(out, x + 1)


@triton.jit
def assembly_kernel(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    words = tl.inline_asm_elementwise(
        "brev.b32 $0, $1;", "=r,r", [tl.load(x + at)], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(out + at, words)


@kind("feature", "inline assembly")
def assembly():
    assembly_kernel[(1,)](integers(32), torch.empty(32, dtype=torch.int32), N=32)
