"""Launches of many block shapes, whose memory is estimated and then counted by the compiler for TPUs."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from silo import ArgSpec, Scratch

__all__ = ["Launch", "edge", "launches"]

_WIDTHS = {"fp32": 4, "bf16": 2, "i8": 1, "i32": 4}
_COLUMNS = (100, 128, 200, 256, 384, 512, 1024, 2048, 4096)
_LANES = 128


@dataclass(frozen=True)
class Launch:
    """One launch: a kernel body with its options for ``silo.pallas``, the arrays of a call, and the grid."""

    form: str
    body: Callable[..., object]
    args: list[Any]
    arrays: Mapping[str, tuple[tuple[int, ...], str]]
    grid: tuple[int, ...]
    scratch: list[Scratch] = field(default_factory=list)
    scheme: Literal["default", "pipeline", "fori"] = "default"

    def __str__(self) -> str:
        blocks = [one.block for one in self.args if one.block] + [tuple(one.shape) for one in self.scratch]
        dtypes = "/".join(dict.fromkeys(element for _, element in self.arrays.values()))
        return f"{self.form} {' '.join(map(str, blocks))} {dtypes}"


_PIECE = 4096  # length of a piece of an array with one axis


def pieces(whole: Any, work: Callable[[Any], None]) -> None:
    """Call ``work`` on pieces of a block, in a loop.

    One operation on a large block would compile to thousands of instructions.
    """
    length = {1: _PIECE, 2: 32}.get(len(whole.shape), 1)

    def step(place: Any, carry: Any) -> Any:
        work(pl.ds(pl.multiple_of(place * length, length), length))
        return carry

    jax.lax.fori_loop(0, whole.shape[0] // length, step, 0)


def add(x: Any, y: Any, out: Any) -> None:
    """Add two blocks; for int8, which not every chip can add, take the bitwise or."""

    def work(part: Any) -> None:
        out[part] = x[part] | y[part] if x.dtype == jnp.int8 else x[part] + y[part]

    pieces(out, work)


def bump(x: Any, y: Any) -> None:
    """Add x to y in place (the bitwise or for int8)."""

    def work(part: Any) -> None:
        y[part] = x[part] | y[part] if x.dtype == jnp.int8 else x[part] + y[part]

    pieces(y, work)


def softmax(x: Any, out: Any) -> None:
    """Compute the softmax of rows; the intermediate values are as large as the block."""
    value = x[...].astype(jnp.float32)
    power = jnp.exp(value - value.max(-1, keepdims=True))
    out[...] = (power / power.sum(-1, keepdims=True)).astype(out.dtype)


def norm(x: Any, weight: Any, out: Any) -> None:
    """Normalize rows, with a weight that all programs share."""
    value = x[...].astype(jnp.float32)
    scale = jax.lax.rsqrt((value * value).mean(-1, keepdims=True) + 1e-6)
    out[...] = (value * scale * weight[...]).astype(out.dtype)


def sums(x: Any, out: Any) -> None:
    """Compute the sum of each row."""
    out[...] = x[...].astype(jnp.float32).sum(-1, keepdims=True)


def matmul(x: Any, y: Any, out: Any, total: Any) -> None:
    """Compute a matrix product whose sum stays in scratch memory."""

    @pl.when(pl.program_id(2) == 0)
    def _() -> None:
        total[...] = jnp.zeros_like(total)

    total[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _() -> None:
        out[...] = total[...].astype(out.dtype)


def windows(x: Any, out: Any) -> None:
    """Copy some rows of an array that the program has as a whole."""
    rows = out.shape[0]
    out[...] = x[pl.ds(pl.multiple_of(pl.program_id(0) * rows, rows), rows), :]


def turned(x: Any, out: Any) -> None:
    """Transpose a block."""
    out[...] = x[...].T


def copies(x: Any, out: Any, held: Any, done: Any) -> None:
    """Double a window of rows, with the kernel's own asynchronous copies."""
    rows = held.shape[0]
    window = pl.ds(pl.program_id(0) * rows, rows)
    arrived = pltpu.make_async_copy(x.at[window], held, done)
    arrived.start()
    arrived.wait()

    def work(part: Any) -> None:
        held[part] *= 2

    pieces(held, work)
    left = pltpu.make_async_copy(held, out.at[window], done)
    left.start()
    left.wait()


def pipelined(rows: int, columns: int) -> Callable[..., None]:
    """Return a body with a pipeline of its own, whose memory no spec declares."""

    def body(x: Any, out: Any) -> None:
        def step(x_block: Any, out_block: Any) -> None:
            def work(part: Any) -> None:
                out_block[part] = x_block[part] * 2

            pieces(out_block, work)

        block = pl.BlockSpec((rows, columns), lambda i: (i, 0))
        pltpu.emit_pipeline(step, grid=(x.shape[0] // rows,), in_specs=[block], out_specs=[block])(x, out)

    return body


def edge(share: float, vmem: int) -> Launch:
    """Return an addition whose blocks take the share ``share`` of ``vmem`` bytes."""
    rows = int(share * vmem / (6 * _LANES * 4 * 8)) // 32 * 32
    block, shape = (rows, 8 * _LANES), ((4 * rows, 8 * _LANES), "fp32")
    spec, out = ArgSpec(block=block, dims=(0,)), ArgSpec(block=block, dims=(0,), role="out")
    return Launch("add", add, [spec, spec, out], {"x": shape, "y": shape, "out": shape}, (4,))


def launches(seed: int, vmem: int) -> Iterator[Launch]:
    """Yield random launches without end, which need 2 % to 125 % of ``vmem`` bytes; half of them need 80 % to 110 %."""
    chosen = random.Random(seed)
    forms = [_elementwise, _in_place, _rows, _product, _whole, _own_copies, _pipeline, _line, _cube, _turned, _buffers]
    while True:
        for form in forms:
            near = chosen.random() < 0.5
            yield form(chosen, int(vmem * (chosen.uniform(0.8, 1.1) if near else chosen.uniform(0.02, 1.25))))


def _width(chosen: random.Random, *dtypes: str) -> tuple[str, int, int]:
    element = chosen.choice(dtypes or ("fp32", "bf16", "i8"))
    columns = chosen.choice(_COLUMNS)
    return element, columns, _WIDTHS[element] * -(-columns // _LANES) * _LANES


def _height(size: int, row: float) -> int:
    """Return the number of rows of ``row`` bytes in ``size`` bytes, a multiple of 32 (whole tiles of any dtype)."""
    return max(32, int(size / row) // 32 * 32)


def _elementwise(chosen: random.Random, size: int) -> Launch:
    element, columns, row = _width(chosen)
    block = (_height(size, 6 * row), columns)
    spec, out = ArgSpec(block=block, dims=(0,)), ArgSpec(block=block, dims=(0,), role="out")
    shape = ((block[0] * 3 + 8, columns), element)
    return Launch("add", add, [spec, spec, out], {"x": shape, "y": shape, "out": shape}, (4,))


def _in_place(chosen: random.Random, size: int) -> Launch:
    element, columns, row = _width(chosen)
    block = (_height(size, 6 * row), columns)
    spec, out = ArgSpec(block=block, dims=(0,)), ArgSpec(block=block, dims=(0,), role="inout")
    shape = ((block[0] * 4, columns), element)
    return Launch("bump", bump, [spec, out], {"x": shape, "y": shape}, (4,))


def _rows(chosen: random.Random, size: int) -> Launch:
    element, columns, row = _width(chosen, "fp32", "bf16")
    body = chosen.choice((softmax, norm, sums))
    block = (_height(size, 2 * row + 2 * _LANES * 4 if body is sums else 4 * row), columns)
    spec = ArgSpec(block=block, dims=(0,))
    shape = ((block[0] * 4, columns), element)
    if body is sums:
        one = ArgSpec(block=(block[0], 1), dims=(0,), role="out")
        return Launch("sums", sums, [spec, one], {"x": shape, "out": ((block[0] * 4, 1), "fp32")}, (4,))
    out = ArgSpec(block=block, dims=(0,), role="out")
    if body is softmax:
        return Launch("softmax", softmax, [spec, out], {"x": shape, "out": shape}, (4,))
    weight = ((1, columns), element)
    return Launch("norm", norm, [spec, ArgSpec(), out], {"x": shape, "weight": weight, "out": shape}, (4,))


def _product(chosen: random.Random, size: int) -> Launch:
    element = chosen.choice(("fp32", "bf16"))
    width, inner = _WIDTHS[element], chosen.choice((128, 256, 512, 1024))
    columns = chosen.choice((128, 256, 512, 1024, 2048))
    left = size - 2 * inner * columns * width
    rows = min(16384, max(128, left // (2 * inner * width + 2 * columns * width + columns * 4) // 128 * 128))
    args = [
        ArgSpec(block=(rows, inner), dims=(0, 2)),
        ArgSpec(block=(inner, columns), dims=(2, 1)),
        ArgSpec(block=(rows, columns), dims=(0, 1), role="out"),
    ]
    arrays = {
        "x": ((2 * rows, 2 * inner), element),
        "y": ((2 * inner, 2 * columns), element),
        "out": ((2 * rows, 2 * columns), element),
    }
    return Launch("matmul", matmul, args, arrays, (2, 2, 2), [Scratch("vmem", (rows, columns))])


def _whole(chosen: random.Random, size: int) -> Launch:
    element, columns, row = _width(chosen)
    rows = _height(size, 6 * row)
    shape = ((4 * rows, columns), element)
    args = [ArgSpec(), ArgSpec(block=(rows, columns), dims=(0,), role="out")]
    return Launch("windows", windows, args, {"x": shape, "out": shape}, (4,))


def _own_copies(chosen: random.Random, size: int) -> Launch:
    element, columns, row = _width(chosen, "fp32", "bf16")
    columns = -(-columns // _LANES) * _LANES
    rows = _height(size, row)
    shape = ((2 * rows, columns), element)
    scratch = [Scratch("vmem", (rows, columns), "x"), Scratch("dma_semaphore")]
    args = [ArgSpec(), ArgSpec(role="out")]
    return Launch("copies", copies, args, {"x": shape, "out": shape}, (2,), scratch, "fori")


def _pipeline(chosen: random.Random, size: int) -> Launch:
    element, columns, row = _width(chosen, "fp32", "bf16")
    rows = _height(size, 4 * row)
    shape = ((4 * rows, columns), element)
    body = pipelined(rows, columns)
    form = f"pipeline of {(rows, columns)}"
    return Launch(form, body, [ArgSpec(), ArgSpec(role="out")], {"x": shape, "out": shape}, (1,), scheme="pipeline")


def _line(chosen: random.Random, size: int) -> Launch:
    element = chosen.choice(("fp32", "bf16", "i8"))
    block = (max(4096, size // (6 * _WIDTHS[element]) // 4096 * 4096),)
    spec, out = ArgSpec(block=block, dims=(0,)), ArgSpec(block=block, dims=(0,), role="out")
    shape = ((block[0] * 4,), element)
    return Launch("line", add, [spec, spec, out], {"x": shape, "y": shape, "out": shape}, (4,))


def _cube(chosen: random.Random, size: int) -> Launch:
    element, columns, row = _width(chosen)
    rows = chosen.choice((1, 3, 8, 16, 20, 32))
    tile = min(32 // _WIDTHS[element], 1 << (rows - 1).bit_length())
    block = (max(1, int(size / (6 * row * -(-rows // tile) * tile))), rows, columns)
    spec, out = ArgSpec(block=block, dims=(0,)), ArgSpec(block=block, dims=(0,), role="out")
    shape = ((block[0] * 4, rows, columns), element)
    return Launch("cube", add, [spec, spec, out], {"x": shape, "y": shape, "out": shape}, (4,))


def _turned(chosen: random.Random, size: int) -> Launch:
    columns = chosen.choice((128, 256, 512, 1024))
    rows = max(_LANES, int(size / (4 * columns * 4)) // _LANES * _LANES)
    args = [
        ArgSpec(block=(rows, columns), dims=(0, None)),
        ArgSpec(block=(columns, rows), dims=(None, 0), role="out"),
    ]
    arrays = {"x": ((4 * rows, columns), "fp32"), "out": ((columns, 4 * rows), "fp32")}
    return Launch("turned", turned, args, arrays, (4,))


def _buffers(chosen: random.Random, size: int) -> Launch:
    element, columns, row = _width(chosen)
    block = (_height(size, 4 * row), columns)
    spec, out = ArgSpec(block=block, dims=(0,), buffers=1), ArgSpec(block=block, dims=(0,), role="out")
    shape = ((block[0] * 4, columns), element)
    return Launch("add with buffers=1", add, [spec, spec, out], {"x": shape, "y": shape, "out": shape}, (4,))
