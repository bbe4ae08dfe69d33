"""A 5 by 5 convolution with 207 configs for the CPU, which ``bench.tune.noise`` tunes under load."""

# pyright: reportGeneralTypeIssues=false
import numpy as np
import triton
import triton.language as tl

import silo


@silo.kernel(
    space={
        "BH": [1, 2, 4, 8, 16],
        "BW": [16, 32, 64, 128, 256],
        "TILES": [1, 2, 4],
        "UNROLL": [0, 1, 2],
        "num_warps": [4],
    },
    constraints=[lambda c: c.BH * c.BW <= 2048, lambda c: c.BH * c.BW >= 32],
    key=["H", "W"],
    grid=lambda a: (silo.cdiv(a.H, a.BH), silo.cdiv(a.W, a.BW * a.TILES)),
)
@triton.jit
def conv(
    x,
    f,
    out,
    H,
    W,
    K: tl.constexpr,
    BH: tl.constexpr,
    BW: tl.constexpr,
    TILES: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Compute out[h, w] = sum of x[h + i, w + j] f[i, j]; x is (H + K - 1, W + K - 1)."""
    width = W + K - 1
    rows = tl.program_id(0) * BH + tl.arange(0, BH)
    for tile in range(TILES):
        columns = (tl.program_id(1) * TILES + tile) * BW + tl.arange(0, BW)
        inside = (rows[:, None] < H) & (columns[None, :] < W)
        at = x + rows[:, None] * width + columns[None, :]
        total = tl.zeros((BH, BW), tl.float32)
        if UNROLL == 2:
            for i in tl.static_range(K):
                for j in tl.static_range(K):
                    total += tl.load(at + i * width + j, mask=inside, other=0.0) * tl.load(f + i * K + j)
        elif UNROLL == 1:
            for i in range(K):
                for j in tl.static_range(K):
                    total += tl.load(at + i * width + j, mask=inside, other=0.0) * tl.load(f + i * K + j)
        else:
            for i in range(K):
                for j in range(K):
                    total += tl.load(at + i * width + j, mask=inside, other=0.0) * tl.load(f + i * K + j)
        tl.store(out + rows[:, None] * W + columns[None, :], total, mask=inside)


SHAPE, K = (256, 256), 5


@conv.cases(shape=[SHAPE])
def _(shape, make):
    height, width = shape
    x, f, out = make.normal((height + K - 1, width + K - 1)), make.normal((K, K)), make.empty(shape)

    def expected():
        total = np.zeros(shape)
        for i in range(K):
            for j in range(K):
                total += x.host[i : i + height, j : j + width].astype(np.float64) * f.host[i, j]
        return total

    return silo.Case(args=(x, f, out, height, width, K), expected={"out": expected})
