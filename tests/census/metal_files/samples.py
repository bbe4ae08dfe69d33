"""Runs of kernels of these files with their results: each case has the arguments in the order of the buffers.

A sample names a file and a kernel of it. Its function takes a random generator and returns the arguments and the
expected contents of the arrays that the kernel writes, by their place among the arguments.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import silo
from silo.errors import SiloError

from .reading import ReadFile, constants_of

__all__ = ["SAMPLES", "Sample", "find", "run", "run_alone"]

Arguments = list[object]
Make = Callable[[np.random.Generator], tuple[Arguments, Mapping[int, np.ndarray]]]
SIZE = 128  # of arrays: what most grids here have threads for; kernels of MLX check no bounds


@dataclass(frozen=True)
class Sample:
    """One run of one kernel."""

    project: str
    file: str  # the end of the path
    kernel: str
    make: Make
    grid: Sequence[int]
    group: Sequence[int]
    constants: Mapping[str, int | float | bool] = field(default_factory=dict)
    group_bytes: int | None = None
    tolerance: float = 1e-5


SAMPLES: list[Sample] = []


def sample(
    project: str,
    file: str,
    kernel: str,
    grid: Sequence[int] = (4,),
    group: Sequence[int] = (32,),
    **options: object,
) -> Callable[[Make], Make]:
    """Adds a function as the arguments of a run."""

    def add(make: Make) -> Make:
        SAMPLES.append(Sample(project, file, kernel, make, grid, group, **options))
        return make

    return add


def run(file: ReadFile, one: Sample) -> str:
    """Runs a sample on the emulator. Returns "" if every written array is right, else the reason."""
    assert file.text is not None
    try:
        kernel = silo.metal(
            file.path,
            kernel=one.kernel,
            include=list(file.include),
            constants=constants_of(file.text, one.constants),
            group_size=list(one.group),
            threadgroup_bytes=one.group_bytes,
            grid=tuple(one.grid),
        )
        arguments, expected = one.make(np.random.default_rng(1))
        kernel(*arguments)
    except SiloError as error:
        return str(error)
    for place, wanted in expected.items():
        found = arguments[place]
        assert isinstance(found, np.ndarray)
        if not np.allclose(found[: len(wanted)], wanted, rtol=one.tolerance, atol=one.tolerance, equal_nan=True):
            return f"argument {place} is {found[:4]} ..., expected {wanted[:4]} ..."
    return ""


def run_alone(file: ReadFile, one: Sample) -> str:
    """Runs a sample in a process of its own, which a kernel that writes beyond its arrays may end."""
    words = [one.project, one.kernel, str(file.path), *map(str, file.include)]
    made = subprocess.run(
        [sys.executable, "-m", "tests.census.metal_files.one_run", *words], capture_output=True, text=True, check=False
    )
    return made.stdout.strip() if made.returncode == 0 else f"ended with {made.returncode}: {made.stderr[-300:]}"


def find(project: str, path: Path) -> list[Sample]:
    """Returns the samples of a file."""
    return [one for one in SAMPLES if one.project == project and path.as_posix().endswith("/" + one.file)]


def _floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape or SIZE).astype(np.float32)


def _longs(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def _softmax(x: np.ndarray) -> np.ndarray:
    grown = np.exp(x - x.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


# ---- MLX ----


@sample("mlx", "arange.metal", "arangefloat32")
def _(rng):
    del rng
    return [2.0, 0.5, np.zeros(128, np.float32)], {2: 2 + 0.5 * np.arange(128)}


@sample("mlx", "arg_reduce.metal", "argmax_float32", grid=(1, 3), group=(32, 1))
def _(rng):
    x = _floats(rng, 3, 100)
    return [x, np.zeros(3, np.uint32), _ints(3), _longs(100), _longs(1), 1, 1, 100], {1: x.argmax(1)}


@sample("mlx", "kernels/binary.metal", "vv_Addfloat32")
def _(rng):
    x, y = _floats(rng), _floats(rng)
    return [x, y, np.zeros(SIZE, np.float32), SIZE], {2: x + y}


@sample("mlx", "binary_two.metal", "vv_DivModint32")
def _(rng):
    x, y = (rng.integers(1, 1000, SIZE, dtype=np.int32) for _ in "ab")
    made = [np.zeros(SIZE, np.int32) for _ in "ab"]
    return [x, y, *made, SIZE], {2: x // y, 3: x % y}


@sample("mlx", "copy.metal", "s_copyfloat32float16")
def _(rng):
    x = _floats(rng)
    return [x, np.zeros(SIZE, np.float16), SIZE], {1: np.full(SIZE, x[0], np.float16)}


@sample("mlx", "dot.metal", "dot_product_float32_it32_tg512_sg16", grid=(1,), group=(512,), tolerance=1e-3)
def _(rng):
    x, y = _floats(rng, 5000), _floats(rng, 5000)
    return [x, y, np.zeros(1, np.float32), 5000], {2: np.array([x.astype(float) @ y])}


# Of bn8 the author's own barrier is in a branch that some threads do not take, which the emulator reports.
GEMV = "gemv_float32_bm4_bn1_sm1_sn32_tm4_tn4_nc0_axpby0"


def _gemv(rng):
    rows, columns = 8, 200
    mat, vec = _floats(rng, rows, columns), _floats(rng, columns)
    out = np.zeros(rows, np.float32)
    zero = _longs(0)
    batch = [1, _ints(1), zero, zero, zero, 1]
    return [mat, vec, out.copy(), out, columns, rows, columns, 1.0, 0.0, *batch], {3: mat @ vec}


sample("mlx", "kernels/gemv.metal", GEMV, grid=(1, 1, 1), group=(32, 1, 4), tolerance=1e-4)(_gemv)


@sample("mlx", "layer_norm.metal", "layer_normfloat32", grid=(3,), group=(32,), constants={"has_w": True})
def _(rng):
    x, w, b = _floats(rng, 3, 100), _floats(rng, 100), _floats(rng, 100)
    made = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b
    return [x, w, b, np.zeros(300, np.float32), 1e-5, 100, 1, 1], {3: made.ravel()}


@sample("mlx", "rms_norm.metal", "rmsfloat32", grid=(3,), group=(32,), constants={"has_w": True})
def _(rng):
    x, w = _floats(rng, 3, 100), _floats(rng, 100)
    made = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * w
    return [x, w, np.zeros(300, np.float32), 1e-5, 100, 1], {2: made.ravel()}


@sample("mlx", "logsumexp.metal", "block_logsumexp_float32", grid=(3,), group=(32,))
def _(rng):
    x = _floats(rng, 3, 100)
    return [x, np.zeros(3, np.float32), 100], {1: np.log(np.exp(x).sum(1))}


@sample("mlx", "kernels/random.metal", "rbitsc", grid=(3, 2), group=(1, 4))
def _(rng):
    keys = rng.integers(0, 1 << 32, (3, 2), dtype=np.uint32)
    made = np.stack([_threefry(key, 8) for key in keys])
    return [keys, np.zeros(3 * 64, np.int8), False, 64], {1: made.view(np.int8).ravel()}


def _threefry(key: np.ndarray, half: int) -> np.ndarray:
    """Returns 2 x ``half`` words of the generator Threefry 2x32 with 20 rounds (Salmon et al., 2011)."""
    keys = [int(key[0]), int(key[1]), int(key[0]) ^ int(key[1]) ^ 0x1BD11BDA]
    found = np.zeros(2 * half, np.uint32)
    for counter in range(half):
        x, y = (counter + keys[0]) & 0xFFFFFFFF, (counter + half + keys[1]) & 0xFFFFFFFF
        for step in range(5):
            for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[step % 2]:
                x = (x + y) & 0xFFFFFFFF
                y = ((y << turn | y >> (32 - turn)) & 0xFFFFFFFF) ^ x
            x = (x + keys[(step + 1) % 3]) & 0xFFFFFFFF
            y = (y + keys[(step + 2) % 3] + step + 1) & 0xFFFFFFFF
        found[counter], found[counter + half] = x, y
    return found


@sample("mlx", "kernels/reduce.metal", "all_reduce_sumfloat32", grid=(1,), group=(64,), tolerance=1e-4)
def _(rng):
    x = _floats(rng, 1000)
    return [x, np.zeros(1, np.float32), 1000, 1000], {1: np.array([x.astype(float).sum()])}


@sample("mlx", "rope.metal", "rope_single_float32", grid=(2, 3), group=(8, 1), constants={"forward": True})
def _(rng):
    x = _floats(rng, 3, 32)
    angles = 5 * np.exp2(-np.arange(16) / 16 * np.float32(np.log2(10000)))
    first, second = x[:, :16], x[:, 16:]
    made = [first * np.cos(angles) - second * np.sin(angles), first * np.sin(angles) + second * np.cos(angles)]
    base = float(np.log2(10000))
    return [x, np.zeros(96, np.float32), 5, 1.0, 32, base], {1: np.concatenate(made, 1).ravel()}


@sample("mlx", "scan.metal", "contig_scan_inclusive_sum_float32_float32", grid=(1, 3), group=(32, 1), tolerance=1e-4)
def _(rng):
    x = _floats(rng, 3, 300)
    return [x, np.zeros(900, np.float32), 300], {1: x.cumsum(1).ravel()}


@sample("mlx", "softmax.metal", "block_softmax_float32", grid=(3,), group=(32,))
def _(rng):
    x = _floats(rng, 3, 100)
    return [x, np.zeros(300, np.float32), 100], {1: _softmax(x).ravel()}


def _block_sort(rng):
    x = _floats(rng, 3, 100)
    return [x, np.zeros(300, np.float32), 100, 1, 1, 100, 100], {1: np.sort(x, 1).ravel()}


sample("mlx", "kernels/sort.metal", "c_block_sort_float32_float32_bn32_tn4", grid=(1, 3), group=(32, 1))(_block_sort)


@sample("mlx", "ternary.metal", "v_Selectfloat32")
def _(rng):
    chosen, x, y = _floats(rng) > 0, _floats(rng), _floats(rng)
    return [chosen, x, y, np.zeros(SIZE, np.float32), SIZE], {3: np.where(chosen, x, y)}


@sample("mlx", "unary.metal", "v_Sqrtfloat32float32")
def _(rng):
    x = abs(_floats(rng))
    return [x, np.zeros(SIZE, np.float32), SIZE], {1: np.sqrt(x)}


@sample("mlx", "searchsorted.metal", "searchsorted_float32_left", grid=(128, 1, 1), group=(1, 1, 1))
def _(rng):
    x, y = np.sort(_floats(rng, 50)), _floats(rng)
    return [x, y, np.zeros(SIZE, np.uint32), 50, 1], {2: np.searchsorted(x, y)}


def _attention(rng, *, mlx):
    heads, length, width = 2, 40, 64
    q, k, v = _floats(rng, heads, width), _floats(rng, heads, length, width), _floats(rng, heads, length, width)
    scores = np.einsum("hd,hnd->hn", q, k) * 0.125
    made = np.einsum("hn,hnd->hd", _softmax(scores), v)
    out, none = np.zeros(heads * width, np.float32), np.zeros(1, bool)
    head = length * width
    arguments = [q, k, v, out, 1, length, *((head, width, head, width) if mlx else (head, head)), 0.125]
    tail = [none, np.zeros(1, np.float32), 0, 0, 0, np.zeros(1, np.float32), heads] if mlx else [1.0, none, 0, 0]
    return [*arguments, *tail], {3: made.ravel()}


@sample(
    "mlx",
    "kernels/scaled_dot_product_attention.metal",
    "sdpa_vector_float_64_64",
    grid=(2, 1, 1),
    group=(1024,),
    tolerance=1e-4,
)
def _(rng):
    return _attention(rng, mlx=True)


@sample("mlx", "kernels/quantized.metal", "affine_dequantize_float_gs_32_b_4", grid=(1, 1), group=(64, 1))
def _(rng):
    packed = rng.integers(0, 256, 64, dtype=np.uint8)
    scales, biases = _floats(rng, 4), _floats(rng, 4)
    values = np.stack([packed & 15, packed >> 4], 1).reshape(4, 32)
    made = values * scales[:, None] + biases[:, None]
    return [packed, scales, biases, np.zeros(128, np.float32)], {3: made.ravel()}


# ---- candle ----


@sample("candle", "affine.metal", "affine_f32")
def _(rng):
    x = _floats(rng)
    return [SIZE, 1.5, 0.25, x, np.zeros(SIZE, np.float32)], {4: x * 1.5 + 0.25}


@sample("candle", "binary.metal", "badd_f32")
def _(rng):
    x, y = _floats(rng), _floats(rng)
    return [SIZE, x, y, np.zeros(SIZE, np.float32)], {3: x + y}


@sample("candle", "cast.metal", "cast_f32_f16")
def _(rng):
    x = _floats(rng)
    return [SIZE, x, np.zeros(SIZE, np.float16)], {2: x.astype(np.float16)}


@sample("candle", "fill.metal", "fill_f32")
def _(rng):
    del rng
    return [np.zeros(SIZE, np.float32), 2.5, SIZE], {0: np.full(SIZE, 2.5)}


@sample("candle", "indexing.metal", "is_u32_f32")
def _(rng):
    x, ids = _floats(rng, 10, 8), rng.integers(0, 10, 5, dtype=np.uint32)
    none = np.zeros(1, np.uint64)
    return [40, 1, 10, 8, 5, True, none, none, x, ids, np.zeros(40, np.float32)], {10: x[ids].ravel()}


@sample("candle", "metal_src/reduce.metal", "softmax_f32", grid=(3,), group=(32,))
def _(rng):
    x = _floats(rng, 3, 100)
    return [300, 100, x, np.zeros(300, np.float32)], {3: _softmax(x).ravel()}


@sample("candle", "metal_src/sort.metal", "asort_asc_f32", grid=(1, 3, 1), group=(128,), group_bytes=512)
def _(rng):
    x = _floats(rng, 3, 100)
    return [x, np.zeros(300, np.uint32), 100, 128], {1: x.argsort(1).ravel()}


@sample(
    "candle", "ternary.metal", "where_u8_f32", constants={"IDS_CONTIGUOUS": 1, "T_CONTIGUOUS": 1, "F_CONTIGUOUS": 1}
)
def _(rng):
    chosen, x, y = (_floats(rng) > 0).astype(np.uint8), _floats(rng), _floats(rng)
    shape, steps = np.array([SIZE], np.uint64), np.ones(1, np.uint64)
    made = np.where(chosen, x, y)
    return [SIZE, 1, shape, steps, steps, steps, chosen, x, y, np.zeros(SIZE, np.float32)], {9: made}


@sample("candle", "unary.metal", "sqrt_f32")
def _(rng):
    x = abs(_floats(rng))
    return [SIZE, x, np.zeros(SIZE, np.float32)], {2: np.sqrt(x)}


sample("candle", "metal_src/gemv.metal", GEMV, grid=(1, 1, 1), group=(32, 1, 4), tolerance=1e-4)(_gemv)
sample("candle", "mlx_sort.metal", "c_block_sort_float32_float32_bn128_tn8", grid=(1, 3), group=(128, 1))(_block_sort)


@sample("candle", "metal_src/conv.metal", "im2col_f32", grid=(32,), group=(32,))
def _(rng):
    x = _floats(rng, 1, 2, 6, 7)  # batch, channels, height, width
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))  # b, c, h, w, 3, 3
    made = windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1)
    shape, steps = np.array(x.shape, np.uint64), np.array([84, 42, 7, 1], np.uint64)
    out = np.zeros(made.size, np.float32)
    return [made.size, 4, 5, 3, 3, 1, 0, 1, shape, steps, x, out], {11: made}


@sample(
    "candle", "metal_src/quantized.metal", "kernel_mul_mv_q8_0_f32", grid=(2, 1, 1), group=(8, 8, 1), tolerance=1e-3
)
def _(rng):
    rows, columns = 8, 64
    values = rng.integers(-127, 128, (rows, columns // 32, 32), dtype=np.int8)
    scales = rng.normal(size=(rows, columns // 32)).astype(np.float16)
    blocks = np.concatenate([scales[..., None].view(np.int8), values], -1)  # a half, then 32 numbers
    mat = (values * scales[..., None].astype(np.float32)).reshape(rows, columns)
    vec, out = _floats(rng, columns), np.zeros(rows, np.float32)
    sizes = [columns, rows, 1, 34, 68, 68 * rows, columns, 1, 1, 4, 4 * columns, 4 * columns, rows, 1, 1, 1]
    return [blocks.view(np.uint8).ravel(), vec, out, *sizes], {2: mat @ vec}


@sample(
    "candle",
    "metal_src/scaled_dot_product_attention.metal",
    "sdpa_vector_float_64",
    grid=(1, 2, 1),
    group=(1024,),
    tolerance=1e-4,
)
def _(rng):
    return _attention(rng, mlx=False)


# ---- llama.cpp and PyTorch ----


@sample("llama", "misc.metal", "kernel_arange_f32", grid=(1,), group=(32,))
def _(rng):
    del rng
    numbers = _longs(SIZE).tobytes() + np.array([2.0, 0.5], np.float32).tobytes()
    return [np.frombuffer(numbers, np.uint8).copy(), np.zeros(4 * SIZE, np.int8)], {
        1: (2 + 0.5 * np.arange(SIZE, dtype=np.float32)).astype(np.float32).view(np.int8)
    }


@sample("pytorch", "BinaryKernel.metal", "fmax_float", grid=(SIZE,), group=(1,))
def _(rng):
    x, y = _floats(rng), _floats(rng)
    offsets = np.zeros((SIZE, 4), np.uint32)
    offsets[:, :3] = 4 * np.arange(SIZE)[:, None]
    return [x, y, np.zeros(SIZE, np.float32), offsets], {2: np.fmax(x, y)}


@sample("pytorch", "Repeat.metal", "repeat_interleave_int32_t", grid=(20,), group=(1,))
def _(rng):
    counts = rng.integers(0, 5, 20, dtype=np.int32)
    made = np.repeat(np.arange(20, dtype=np.int32), counts)
    return [counts, counts.cumsum().astype(np.int64), np.zeros(made.size, np.int32)], {2: made}


@sample("pytorch", "Bucketization.metal", "searchsorted_float_int", grid=(4, 1), group=(32, 1))
def _(rng):
    x, edges = _floats(rng, 128), np.sort(_floats(rng, 10))
    return [x, edges, np.zeros(128, np.int32), 1, 10, 128, 0, 1], {2: np.searchsorted(edges, x)}
