"""More features: atomics, gathers, histograms, shapes, descriptors, conversions, mathematics."""
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

import math
import struct

import torch
import triton
import triton.language as tl
from census_features import integers, tile_at
from census_kinds import close, kind, normal
from triton.language.extra import libdevice

# -- atomics ---------------------------------------------------------------------------------------------------------


@triton.jit
def atomics_kernel(x, total, most, least, every, some, odd, N: tl.constexpr):
    values = tl.load(x + tl.program_id(0) * N + tl.arange(0, N))
    where = tl.arange(0, N) % 4
    tl.atomic_add(total + where, values)
    tl.atomic_max(most + where, values)
    tl.atomic_min(least + where, values)
    tl.atomic_and(every + where, values)
    tl.atomic_or(some + where, values)
    tl.atomic_xor(odd + where, values)


@kind("feature", "atomics of integers")
def integer_atomics():
    for dtype in (torch.int32, torch.int64):
        x = integers(16, 64, dtype=dtype)
        largest = torch.iinfo(dtype).max
        starts = (0, -largest - 1, largest, -1, 0, 0)
        found = [torch.full((4,), start, dtype=dtype) for start in starts]
        atomics_kernel[(16,)](x, *found, N=64)
        by_place = x.view(-1, 4)
        bits = [[0, 0, 0] for _ in range(4)]
        for place, values in enumerate(by_place.T.tolist()):
            every, some, odd = -1, 0, 0
            for value in values:
                every, some, odd = every & value, some | value, odd ^ value
            bits[place] = [every, some, odd]
        expected = [by_place.sum(0), by_place.amax(0), by_place.amin(0), *torch.tensor(bits).T]
        for one, other in zip(found, expected, strict=True):
            assert one.tolist() == other.tolist()


@triton.jit
def float_atomics_kernel(x, total, most, least, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + tl.program_id(0) * N + at)
    kept = tl.program_id(0) % 3 != 0
    tl.atomic_add(total + at, values, mask=kept)
    tl.atomic_max(most + at, values.to(tl.float32))
    tl.atomic_min(least + at, values.to(tl.float32))


@kind("feature", "atomics of floats, masked")
def float_atomics():
    for dtype, tolerance in (
        (torch.float32, 1e-5),
        (torch.float64, 1e-12),
        (torch.float16, 2e-2),
        (torch.bfloat16, 0.2),
    ):
        x = normal(12, 32).to(dtype)
        total = torch.zeros(32, dtype=dtype)
        most, least = torch.full((32,), -math.inf), torch.full((32,), math.inf)
        float_atomics_kernel[(12,)](x, total, most, least, N=32)
        kept = torch.arange(12) % 3 != 0
        close(total, x[kept].double().sum(0), rtol=tolerance, atol=tolerance)
        assert torch.equal(most, x.float().amax(0))
        assert torch.equal(least, x.float().amin(0))


@triton.jit
def ticket_kernel(counter, order, lock, shared):
    ticket = tl.atomic_add(counter, 1)
    tl.store(order + ticket, tl.program_id(0))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(shared, tl.load(shared) * 3 % 1009)
    tl.atomic_xchg(lock, 0)


@kind("feature", "results of atomics: tickets, locks")
def tickets():
    counter, lock, shared = (torch.zeros(1, dtype=torch.int32) for _ in range(3))
    shared[0] = 1
    order = torch.full((200,), -1, dtype=torch.int32)
    ticket_kernel[(200,)](counter, order, lock, shared)
    assert sorted(order.tolist()) == list(range(200))
    assert int(counter) == 200
    assert int(shared) == pow(3, 200, 1009)


# -- places ----------------------------------------------------------------------------------------------------------


@triton.jit
def gather_kernel(x, at, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    where = tile_at(M, N)
    tl.store(out + where, tl.gather(tl.load(x + where), tl.load(at + where), AXIS))


@kind("feature", "gather within a tile")
def gather():
    x = normal(16, 32)
    for axis, size in ((0, 16), (1, 32)):
        at = integers(16, 32, low=0, high=size)
        out = torch.empty_like(x)
        gather_kernel[(1,)](x, at, out, M=16, N=32, AXIS=axis)
        assert torch.equal(out, x.gather(axis, at.long()))


@triton.jit
def histogram_kernel(x, out, total, N: tl.constexpr, BINS: tl.constexpr):
    values = tl.load(x + tl.program_id(0) * N + tl.arange(0, N))
    counts = tl.histogram(values, BINS)
    tl.store(out + tl.program_id(0) * BINS + tl.arange(0, BINS), counts)
    tl.atomic_add(total + tl.arange(0, BINS), counts)


@kind("feature", "histogram")
def histogram():
    x = integers(4, 256, low=0, high=16)
    out, total = torch.empty(4, 16, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    histogram_kernel[(4,)](x, out, total, N=256, BINS=16)
    assert out.tolist() == [torch.bincount(row, minlength=16).tolist() for row in x]
    assert total.tolist() == torch.bincount(x.flatten(), minlength=16).tolist()


@triton.jit
def indirect_kernel(table, rows, out, N: tl.constexpr, D: tl.constexpr):
    at = tl.load(rows + tl.arange(0, N))
    tl.store(out + tile_at(N, D), tl.load(table + at[:, None] * D + tl.arange(0, D)[None, :]))


@kind("feature", "loads from computed places")
def indirect():
    table, rows = normal(100, 16), integers(32, low=0, high=100)
    out = torch.empty(32, 16)
    indirect_kernel[(1,)](table, rows, out, N=32, D=16)
    assert torch.equal(out, table[rows.long()])


# -- shapes ----------------------------------------------------------------------------------------------------------


@triton.jit
def join_kernel(x, y, pairs, mixed, even, odd, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    joined = tl.join(a, b)
    tl.store(pairs + tile_at(N, 2), joined)
    tl.store(mixed + tl.arange(0, 2 * N), tl.interleave(a, b))
    first, second = tl.split(tl.reshape(tl.interleave(a, b), (N, 2)))
    tl.store(even + at, first)
    tl.store(odd + at, second)


@kind("feature", "join, split and interleave")
def join():
    x, y = normal(32), normal(32, seed=1)
    pairs, mixed, even, odd = (torch.empty(size) for size in ((32, 2), 64, 32, 32))
    join_kernel[(1,)](x, y, pairs, mixed, even, odd, N=32)
    assert torch.equal(pairs, torch.stack((x, y), 1))
    assert torch.equal(mixed, torch.stack((x, y), 1).flatten())
    assert torch.equal(even, x)
    assert torch.equal(odd, y)


ANY_ORDER = triton.__version__.startswith("3.6.")  # where the order of what is put together is not said


@triton.jit
def cat_kernel(x, y, out, N: tl.constexpr, ANY: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + tl.arange(0, 2 * N), tl.cat(tl.load(x + at), tl.load(y + at), can_reorder=ANY))


@kind("feature", "cat")
def cat():
    x, y, out = normal(32), normal(32, seed=1), torch.empty(64)
    cat_kernel[(1,)](x, y, out, N=32, ANY=ANY_ORDER)
    expected = torch.cat((x, y))
    assert torch.equal(out, expected) or (ANY_ORDER and torch.equal(out.sort().values, expected.sort().values))


@triton.jit
def shapes_kernel(x, turned, folded, wide, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    values = tl.reshape(tl.load(x + tl.arange(0, A * B * C)), (A, B, C))
    tl.store(turned + tl.arange(0, A * B * C), tl.reshape(tl.permute(values, (2, 0, 1)), (A * B * C,)))
    tl.store(folded + tile_at(A, C), tl.sum(values, axis=1))
    tl.store(wide + tile_at(A, B), tl.broadcast_to(tl.max(tl.max(values, 2), 1)[:, None], (A, B)))


@kind("feature", "reshape, permute and broadcast in three dimensions")
def shapes():
    x = normal(4, 8, 16)
    turned, folded, wide = torch.empty(16, 4, 8), torch.empty(4, 16), torch.empty(4, 8)
    shapes_kernel[(1,)](x, turned, folded, wide, A=4, B=8, C=16)
    assert torch.equal(turned, x.permute(2, 0, 1))
    close(folded, x.double().sum(1))
    assert torch.equal(wide, x.amax((1, 2))[:, None].expand(4, 8))


@triton.jit
def swizzle_kernel(out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    to_row, to_column = tl.swizzle2d(row, column, ROWS, COLUMNS, GROUP)
    tl.store(out + to_row * COLUMNS + to_column, row * COLUMNS + column)


@kind("feature", "swizzle2d")
def swizzle():
    out = torch.full((6, 5), -1, dtype=torch.int32)
    swizzle_kernel[(6, 5)](out, 6, 5, 2)
    expected = torch.empty(6, 5, dtype=torch.int32)
    for number in range(30):
        first = number // 10 * 2
        expected[first + number % 10 % 2, number % 10 // 2] = number
    assert torch.equal(out, expected)


@triton.jit
def pairwise(a, b, c):
    return a + b * c, a * 2 - c


@triton.jit
def map_kernel(x, y, z, out, other, N: tl.constexpr):
    at = tl.arange(0, N)
    first, second = tl.map_elementwise(pairwise, tl.load(x + at), tl.load(y + at), tl.load(z + at))
    tl.store(out + at, first)
    tl.store(other + at, second)


@kind("feature", "map_elementwise")
def mapped():
    x, y, z = (integers(64, seed=seed) for seed in range(3))
    out, other = torch.empty_like(x), torch.empty_like(x)
    map_kernel[(1,)](x, y, z, out, other, N=64)
    assert torch.equal(out, x + y * z)
    assert torch.equal(other, x * 2 - z)


# -- descriptors -----------------------------------------------------------------------------------------------------


@triton.jit
def descriptor_kernel(x, out, total, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    target = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    sums = tl.make_tensor_descriptor(total, shape=[BM, BN], strides=[BN, 1], block_shape=[BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    tile = source.load([row, column])
    target.store([row, column], tile * 2)
    sums.atomic_add([0, 0], tile)


@kind("feature", "tensor descriptors made in a kernel")
def descriptors():
    x, out, total = normal(40, 72), torch.zeros(40, 72), torch.zeros(16, 32)
    descriptor_kernel[(3, 3)](x, out, total, 40, 72, BM=16, BN=32)
    assert torch.equal(out, x * 2)
    padded = torch.zeros(48, 96, dtype=torch.float64)
    padded[:40, :72] = x
    close(total, padded.view(3, 16, 3, 32).sum((0, 2)))


@triton.jit
def descriptor_rows_kernel(x, rows, out, M, N: tl.constexpr, COUNT: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[1, BN])
    target = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[1, BN])
    at = tl.load(rows + tl.arange(0, COUNT))
    target.scatter(source.gather(at, 8), at, 8)


@kind("feature", "gather and scatter of rows through descriptors")
def descriptor_rows():
    x, out = normal(64, 40), torch.zeros(64, 40)
    rows = torch.randperm(64, generator=torch.Generator().manual_seed(0))[:8].to(torch.int32)
    descriptor_rows_kernel[(1,)](x, rows, out, 64, N=40, COUNT=8, BN=16)
    expected = torch.zeros(64, 40)
    expected[rows.long(), 8:24] = x[rows.long(), 8:24]
    assert torch.equal(out, expected)


# -- types -----------------------------------------------------------------------------------------------------------


@triton.jit
def convert_kernel(x, out, N: tl.constexpr, BITS: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    tl.store(out + at, value.to(out.dtype.element_ty, bitcast=BITS))


def converted(x, dtype, *, bitcast=False):
    out = torch.empty(x.shape, dtype=dtype)
    convert_kernel[(1,)](x, out, N=x.numel(), BITS=bitcast)
    return out


@triton.jit
def convert_all_kernel(x, outs, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    for index in tl.static_range(len(outs)):
        tl.store(outs[index] + tl.arange(0, N), value.to(outs[index].dtype.element_ty))


@kind("feature", "conversions between numbers")
def conversions():
    numbers = (normal(64) * 50).round() + 0.25
    floats = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
    kinds = [*floats, torch.int8, torch.int16, torch.int32, torch.int64]
    for source in kinds:
        x = numbers.clamp(-100, 100).to(source)
        outs = tuple(torch.empty(64, dtype=target) for target in kinds)
        convert_all_kernel[(1,)](x, outs, N=64)
        for out in outs:
            assert torch.equal(out, x.to(out.dtype)), (source, out.dtype)


@kind("feature", "conversions from and to fp8")
def fp8():
    every = torch.arange(256, dtype=torch.uint8)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = every.view(dtype)
        close(converted(x, torch.float32), x.double(), rtol=0, atol=0)
        numbers = normal(512) * 20
        exact = numbers.to(dtype).float()
        close(converted(numbers, dtype).float(), exact.double(), rtol=0, atol=0)


@kind("feature", "bitcasts")
def bitcasts():
    x = normal(64)
    bits = converted(x, torch.int32, bitcast=True)
    assert bits.tolist() == [struct.unpack("i", struct.pack("f", value))[0] for value in x.tolist()]
    assert torch.equal(converted(bits, torch.float32, bitcast=True), x)


# -- mathematics -----------------------------------------------------------------------------------------------------


@triton.jit
def mathematics_kernel(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    p = tl.abs(v) + 0.5
    tl.store(out + 0 * N + at, tl.exp(v))
    tl.store(out + 1 * N + at, tl.exp2(v))
    tl.store(out + 2 * N + at, tl.log(p))
    tl.store(out + 3 * N + at, tl.log2(p))
    tl.store(out + 4 * N + at, tl.sin(v))
    tl.store(out + 5 * N + at, tl.cos(v))
    tl.store(out + 6 * N + at, tl.sqrt(p))
    tl.store(out + 7 * N + at, tl.rsqrt(p))
    tl.store(out + 8 * N + at, tl.sigmoid(v))
    tl.store(out + 9 * N + at, tl.erf(v))
    tl.store(out + 10 * N + at, tl.floor(v))
    tl.store(out + 11 * N + at, tl.ceil(v))
    tl.store(out + 12 * N + at, tl.fma(v, p, 1.0))
    tl.store(out + 13 * N + at, tl.clamp(v, -0.5, 0.7))
    tl.store(out + 14 * N + at, tl.math.sqrt_rn(p))
    tl.store(out + 15 * N + at, tl.math.div_rn(v, p))
    tl.store(out + 16 * N + at, libdevice.tanh(v))
    tl.store(out + 17 * N + at, libdevice.pow(p, v))
    tl.store(out + 18 * N + at, libdevice.log1p(p))
    tl.store(out + 19 * N + at, tl.softmax(v))


@kind("feature", "mathematical functions")
def mathematics():
    x = normal(256) * 2
    out = torch.empty(20, 256)
    mathematics_kernel[(1,)](x, out, N=256)
    v = x.double()
    p = (x.abs() + 0.5).double()
    expected = [
        v.exp(), v.exp2(), p.log(), p.log2(), v.sin(), v.cos(), p.sqrt(), p.rsqrt(), v.sigmoid(), v.erf(), v.floor(),
        v.ceil(), v * p + 1, v.clamp(-0.5, 0.7), p.sqrt(), v / p, v.tanh(), p**v, p.log1p(), v.softmax(0),
    ]  # fmt: skip
    for index, one in enumerate(expected):
        close(out[index], one, rtol=1e-5, atol=1e-6, what=f"function {index}")


@triton.jit
def words_kernel(x, y, high, quotient, rest, shifted, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(
        high + at, tl.umulhi(a.to(tl.uint32, bitcast=True), b.to(tl.uint32, bitcast=True)).to(tl.int32, bitcast=True)
    )
    tl.store(quotient + at, a // b)
    tl.store(rest + at, a % b)
    tl.store(shifted + at, (a << 3) ^ (a >> 2) & ~b)


@kind("feature", "integers: high products, quotients, shifts")
def words():
    x, y = integers(64, low=-(2**31), high=2**31 - 1), integers(64, low=1, high=2**20, seed=1)
    found = [torch.empty_like(x) for _ in range(4)]
    words_kernel[(1,)](x, y, *found, N=64)

    def signed(value):
        value &= 0xFFFFFFFF
        return value - 2**32 if value >= 2**31 else value

    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    assert found[0].tolist() == [signed(((a & 0xFFFFFFFF) * b) >> 32) for a, b in pairs]
    assert found[1].tolist() == [math.trunc(a / b) for a, b in pairs]
    assert found[2].tolist() == [int(math.fmod(a, b)) for a, b in pairs]
    assert found[3].tolist() == [signed((a << 3) ^ (a >> 2) & ~b) for a, b in pairs]


@triton.jit
def random_kernel(out, normals, whole, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.rand(seed, at))
    tl.store(normals + at, tl.randn(seed, at))
    tl.store(whole + at, tl.randint(seed, at))


@kind("feature", "random numbers")
def random_numbers():
    out, normals, whole = torch.empty(4096), torch.empty(4096), torch.empty(4096, dtype=torch.int32)
    random_kernel[(1,)](out, normals, whole, 42, N=4096)
    assert float(out.min()) >= 0
    assert float(out.max()) < 1
    assert abs(float(out.mean()) - 0.5) < 0.02
    assert abs(float(normals.mean())) < 0.06
    assert abs(float(normals.std()) - 1) < 0.04
    assert len(set(whole.tolist())) > 4090
