"""A decoder that makes one token at a time, as one plan: a step has 60 kernels, and the cache grows by one each step.

``python examples/decoder_plan.py`` runs it on a GPU if torch has one, else on the CPU, and compares the steps with the
kernels launched one by one. Nothing is padded: grids and sizes are of the true length.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import triton
import triton.language as tl

import silo

LAYERS, HEADS, SIZE = 6, 4, 16
WIDTH, INNER = HEADS * SIZE, 4 * HEADS * SIZE
PART = 64  # positions of the cache that one program reads


@triton.jit
def normed(x, weight, out, width, BLOCK: tl.constexpr):
    """out = weight * x / sqrt(mean(x^2))."""
    i = tl.arange(0, BLOCK)
    row = tl.load(x + i, mask=i < width, other=0.0)
    scale = 1 / tl.sqrt(tl.sum(row * row) / width + 1e-5)
    tl.store(out + i, tl.load(weight + i, mask=i < width) * row * scale, mask=i < width)


@triton.jit
def project(x, weight, out, rows, columns, ADD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """out = weight x, or with ADD out += weight x; each program computes ROWS elements."""
    row, i = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    block = tl.load(weight + row[:, None] * columns + i, mask=(row[:, None] < rows) & (i < columns), other=0.0)
    found = tl.sum(block * tl.load(x + i, mask=i < columns, other=0.0)[None, :], axis=1)
    if ADD:
        found += tl.load(out + row, mask=row < rows)
    tl.store(out + row, found, mask=row < rows)


@triton.jit(do_not_specialize=["at"])
def append(qkv, keys, values, at, width, BLOCK: tl.constexpr, LOADED: tl.constexpr):
    """Write this token's keys and values to position ``at`` of the cache; if LOADED, ``at`` points to it."""
    if LOADED:
        at = tl.load(at)
    i = tl.arange(0, BLOCK)
    tl.store(keys + at * width + i, tl.load(qkv + width + i, mask=i < width), mask=i < width)
    tl.store(values + at * width + i, tl.load(qkv + 2 * width + i, mask=i < width), mask=i < width)


@triton.jit(do_not_specialize=["at", "most"])
def attend(qkv, keys, values, sums, tops, parts, at, most, width, scale, SIZE: tl.constexpr, PART: tl.constexpr,
           LOADED: tl.constexpr):  # fmt: skip
    """Attention of one head over one part of the cache: stores its top score, sum of weights, and weighted values."""
    if LOADED:
        at = tl.load(at)
    head, part = tl.program_id(0), tl.program_id(1)
    i, n = tl.arange(0, SIZE), part * PART + tl.arange(0, PART)
    place = n[:, None] * width + head * SIZE + i
    query = tl.load(qkv + head * SIZE + i)
    scores = tl.sum(tl.load(keys + place, mask=n[:, None] <= at, other=0.0) * query[None, :], axis=1) * scale
    scores = tl.where(n <= at, scores, -1e30)
    top = tl.max(scores)
    weights = tl.where(n <= at, tl.exp(scores - top), 0.0)
    found = tl.sum(weights[:, None] * tl.load(values + place, mask=n[:, None] <= at, other=0.0), axis=0)
    slot = head * most + part
    tl.store(tops + slot, top)
    tl.store(sums + slot, tl.sum(weights))
    tl.store(parts + slot * SIZE + i, found)


@triton.jit(do_not_specialize=["count", "most"])
def joined(sums, tops, parts, out, count, most, SIZE: tl.constexpr, PARTS: tl.constexpr):
    """Combine the parts of each head."""
    head, i, n = tl.program_id(0), tl.arange(0, SIZE), tl.arange(0, PARTS)
    slot = head * most + n
    tops_ = tl.load(tops + slot, mask=n < count, other=-1e30)
    weights = tl.where(n < count, tl.exp(tops_ - tl.max(tops_)), 0.0)
    total = tl.sum(weights * tl.load(sums + slot, mask=n < count, other=0.0))
    block = tl.load(parts + slot[:, None] * SIZE + i, mask=n[:, None] < count, other=0.0)
    tl.store(out + head * SIZE + i, tl.sum(weights[:, None] * block / total, axis=0))


@triton.jit
def gated(both, out, inner, BLOCK: tl.constexpr):
    """out = silu(first half) * second half."""
    i = tl.arange(0, BLOCK)
    gate = tl.load(both + i, mask=i < inner, other=0.0)
    tl.store(out + i, gate / (1 + tl.exp(-gate)) * tl.load(both + inner + i, mask=i < inner, other=0.0), mask=i < inner)


TRITON = SimpleNamespace(
    normed=normed, project=project, append=append, attend=attend, joined=joined, gated=gated
)  # for launches by Triton
SILO = SimpleNamespace(**{name: silo.kernel(kernel) for name, kernel in vars(TRITON).items()})


class Decoder:
    """Weights, a cache for ``longest`` tokens (a multiple of ``PART``), and the memory that kernels pass to each other.

    ``array`` is a function that copies a numpy array to the device.
    """

    def __init__(self, array: Callable[[np.ndarray], Any], longest: int = 1024, seed: int = 0) -> None:
        self.longest, self.most = longest, longest // PART
        chance = np.random.default_rng(seed)

        def weights(*shape: int) -> Any:
            return array((chance.standard_normal(shape) / math.sqrt(shape[-1])).astype(np.float32))

        def empty(*shape: int) -> Any:
            return array(np.zeros(shape, np.float32))

        self.layers = [
            SimpleNamespace(
                first=array(np.ones(WIDTH, np.float32)),
                second=array(np.ones(WIDTH, np.float32)),
                qkv=weights(3 * WIDTH, WIDTH),
                out=weights(WIDTH, WIDTH),
                up=weights(2 * INNER, WIDTH),
                down=weights(WIDTH, INNER),
                keys=empty(longest, WIDTH),
                values=empty(longest, WIDTH),
            )
            for _ in range(LAYERS)
        ]
        self.normed, self.qkv, self.attended = empty(WIDTH), empty(3 * WIDTH), empty(WIDTH)
        self.up, self.inner = empty(2 * INNER), empty(INNER)
        self.sums, self.tops = empty(HEADS, self.most), empty(HEADS, self.most)
        self.parts = empty(HEADS, self.most, SIZE)

    def step(self, hidden: Any, at: Any, kernels: Any = SILO, parts: Any = None, *, loaded: bool = False) -> None:
        """Send ``hidden`` through all layers, in place, as the token at position ``at``.

        Args:
            hidden: WIDTH floats.
            at: the position, from 0 on.
            kernels: ``SILO`` or ``TRITON``.
            parts: the number of parts of the cache to read; by default as many as ``at`` needs.
            loaded: ``at`` is an array of one integer that the kernels read.
        """
        k, scale = kernels, 1 / math.sqrt(SIZE)
        parts = silo.cdiv(at + 1, PART) if parts is None else parts
        wide = {"ROWS": 16, "BLOCK": WIDTH}
        for one in self.layers:
            k.normed[(1,)](hidden, one.first, self.normed, WIDTH, BLOCK=WIDTH)
            k.project[(3 * WIDTH // 16,)](self.normed, one.qkv, self.qkv, 3 * WIDTH, WIDTH, ADD=False, **wide)
            k.append[(1,)](self.qkv, one.keys, one.values, at, WIDTH, BLOCK=WIDTH, LOADED=loaded)
            k.attend[(HEADS, parts)](
                *(self.qkv, one.keys, one.values, self.sums, self.tops, self.parts, at, self.most, WIDTH, scale),
                SIZE=SIZE, PART=PART, LOADED=loaded,
            )  # fmt: skip
            k.joined[(HEADS,)](
                self.sums, self.tops, self.parts, self.attended, parts, self.most, SIZE=SIZE, PARTS=self.most
            )
            k.project[(WIDTH // 16,)](self.attended, one.out, hidden, WIDTH, WIDTH, ADD=True, **wide)
            k.normed[(1,)](hidden, one.second, self.normed, WIDTH, BLOCK=WIDTH)
            k.project[(2 * INNER // 16,)](self.normed, one.up, self.up, 2 * INNER, WIDTH, ADD=False, **wide)
            k.gated[(1,)](self.up, self.inner, INNER, BLOCK=INNER)
            k.project[(WIDTH // 16,)](self.inner, one.down, hidden, WIDTH, INNER, ADD=True, ROWS=16, BLOCK=INNER)


def place() -> tuple[str, Callable[[np.ndarray], Any], Callable[[Any], np.ndarray]]:
    """Return the device's name, a function that copies numpy arrays to it, and one that copies them back."""
    try:
        import torch
    except ImportError:
        return "cpu", np.array, np.array
    if not torch.cuda.is_available():
        return "cpu", np.array, np.array
    return "cuda", lambda array: torch.from_numpy(array).cuda(), lambda tensor: tensor.cpu().numpy()


def main() -> None:
    """Make some tokens by the plan and by launches one by one, and compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=200)
    tokens = parser.parse_args().tokens
    device, array, back = place()
    planned, single = Decoder(array), Decoder(array)
    chance = np.random.default_rng(1)
    inputs = [chance.standard_normal(WIDTH).astype(np.float32) for _ in range(tokens)]
    outputs: dict[str, list[np.ndarray]] = {"plan": [], "one by one": []}
    plan: Any = None
    seconds = dict.fromkeys(outputs, 0.0)
    for at, token in enumerate(inputs):
        hidden, same = array(token.copy()), array(token.copy())
        begin = time.perf_counter()
        if plan is None:  # record the first token's step as the plan
            plan = silo.plan(planned.step, hidden, at)
        else:
            plan(hidden, at)
        outputs["plan"].append(back(hidden))
        middle = time.perf_counter()
        single.step(same, at)
        outputs["one by one"].append(back(same))
        if at > tokens // 2:
            seconds["plan"] += middle - begin
            seconds["one by one"] += time.perf_counter() - middle
    for one, other in zip(*outputs.values(), strict=True):
        assert np.array_equal(one, other)
    print(plan.report())
    for name, value in seconds.items():
        print(f"{name} on {device}: {value / max(tokens - tokens // 2 - 1, 1) * 1e6:.0f} us a token")


if __name__ == "__main__":
    main()
