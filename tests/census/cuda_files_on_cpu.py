"""Kernels in CUDA C++ of public files, unchanged, on the CPU against numpy.

``python -m tests.census.cuda_files_on_cpu FOLDER [WORD...]`` runs those whose name holds a word. FOLDER has a checkout
of each repository under its name: pytorch/extension-cpp, serban/kmeans, ankan-ban/llama2.cu, huggingface/candle,
ggml-org/ggml, BlinkDL/RWKV-CUDA. Each kernel runs, and then a check runs it, which has to find nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import silo
from silo.errors import SiloError

F = np.float32
CANDLE = "candle/candle-kernels/src"
GGML = "ggml/src/ggml-cuda"
LLAMA = "llama2.cu/llama2.cu"


@dataclass(frozen=True)
class Public:
    """A kernel: its file and entry, its launch, its arguments, and the array that it has to leave at ``out``."""

    file: str
    entry: str
    arguments: Callable[[np.random.Generator], list[Any]]
    expected: Callable[..., Any]
    out: int
    threads: Any = 64
    grid: tuple[int, ...] = (4,)
    shared: int = 0
    tolerance: float = 1e-5
    constants: dict[str, Any] = field(default_factory=dict)
    include: tuple[str, ...] = ()


def _some(*shape: int, kind: Any = F) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.standard_normal(shape).astype(kind)


def _made(*parts: Any) -> Callable[[np.random.Generator], list[Any]]:
    return lambda rng: [one(rng) if callable(one) else one for one in parts]


def _zeros(n: int, kind: Any = F) -> Callable[[np.random.Generator], Any]:
    return lambda rng: np.zeros(n, kind)


def _unary(name: str, function: Callable[[Any], Any], tolerance: float = 1e-5) -> Public:
    made = _made(200, 1, None, _some(200), _zeros(200))
    return Public(f"{CANDLE}/unary.cu", f"{name}_f32", made, lambda n, d, i, x, o: function(x), 4, tolerance=tolerance)


def _binary(name: str, function: Callable[[Any, Any], Any]) -> Public:
    made = _made(200, 1, None, _some(200), _some(200), _zeros(200))
    return Public(f"{CANDLE}/binary.cu", f"{name}_f32", made, lambda n, d, i, x, y, o: function(x, y), 5)


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).reshape(-1)


def _nearest(coords: int, objects: int, clusters: int, x: Any, c: Any, *_: Any) -> Any:
    a, b = x.reshape(coords, objects).T, c.reshape(coords, clusters).T
    return ((a[:, None] - b[None]) ** 2).sum(-1).argmin(1)


def _adamw(x: Any, g: Any, m: Any, v: Any, p: Any, _: int) -> Any:
    m, v = m * p[1] + g * (1 - p[1]), v * p[2] + g * g * (1 - p[2])
    return x * (1 - p[0] * p[4]) - p[0] * (m * p[5]) / (np.sqrt(v * p[6]) + p[3])


def _norm(x: Any, weight: Any, eps: float) -> Any:
    return (x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + eps) * weight).reshape(-1)


def _llama_norm(o: Any, x: Any, weight: Any, n: int, each: int) -> Any:
    sums = x.astype(F).reshape(each, 1024).sum(0)  # the file adds a thread's values before it squares them
    return x.astype(F) * weight.astype(F) / np.sqrt((sums**2).sum() / n + 1e-5)


def _timex(w: Any, k: Any, x: Any, eps: float, b: int, c: int, t: int) -> Any:
    return np.array(
        [[eps + sum(w[i % c, t - 1 - j + u] * k[i, u] for u in range(j + 1)) for j in range(t)] for i in range(b * c)]
    ).reshape(-1)


_PARS = np.array([0.01, 0.9, 0.99, 1e-8, 0.1, 1.5, 1.2], F)
_GGML = ("ggml/include", "ggml/src")
KERNELS = (
    Public(
        "extension-cpp/extension_cpp/csrc/cuda/muladd.cu", "muladd_kernel",
        _made(200, _some(200), _some(200), 1.5, _zeros(200)), lambda n, a, b, c, o: a * b + c, 4,
    ),
    Public(
        "extension-cpp/extension_cpp/csrc/cuda/muladd.cu", "add_kernel",
        _made(200, _some(200), _some(200), _zeros(200)), lambda n, a, b, o: a + b, 3,
    ),
    Public(
        "kmeans/cuda_kmeans.cu", "find_nearest_cluster",
        _made(3, 256, 5, _some(768), _some(15), lambda rng: np.full(256, -1, np.int32), _zeros(4, np.int32)),
        _nearest, 5, 64, (4,), 64,
    ),
    Public(
        "kmeans/cuda_kmeans.cu", "compute_delta",
        _made(lambda rng: rng.integers(0, 9, 64).astype(np.int32), 50, 64),
        lambda x, n, m: [x[:50].sum()], 0, 64, (1,), 256,
    ),
    Public(
        LLAMA, "element_wise_add_kernel", _made(_some(200, kind=np.float16), _some(200, kind=np.float16), 200),
        lambda a, b, n: a + b, 0, tolerance=1e-3,
    ),
    Public(
        LLAMA, "convert_fp32_to_fp16", _made(_zeros(200, np.float16), _some(200), 200),
        lambda o, x, n: x.astype(np.float16), 0, 256, (1,),
    ),
    Public(
        LLAMA, "silu_element_wise_mul_kernel",
        _made(_some(200, kind=np.float16), _some(200, kind=np.float16), 200),
        lambda a, b, n: (a.astype(F) / (1 + np.exp(-a.astype(F)))) * b, 0, tolerance=3e-3,
    ),
    Public(
        LLAMA, "rmsnorm_kernel",
        _made(_zeros(2048, np.float16), _some(2048, kind=np.float16), _some(2048, kind=np.float16), 2048, 2),
        _llama_norm, 0, 1024, (1,), tolerance=4e-3,
    ),
    _unary("urelu", lambda x: np.maximum(x, 0)),
    _unary("uexp", np.exp),
    _unary("usilu", lambda x: x / (1 + np.exp(-x))),
    _unary("ugelu", lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), 1e-4),
    _binary("badd", np.add),
    _binary("bmaximum", np.maximum),
    Public(
        f"{CANDLE}/affine.cu", "affine_f32", _made(200, 1, None, _some(200), _zeros(200), 2.0, 0.5),
        lambda n, d, i, x, o, m, a: m * x + a, 4,
    ),
    Public(
        f"{CANDLE}/reduce.cu", "softmax_f32", _made(_some(4, 100), _zeros(400), 100),
        lambda x, o, n: _softmax(x), 1, (1, 32), (4,),
    ),
    Public(
        f"{CANDLE}/reduce.cu", "rmsnorm_f32", _made(_some(4, 100), _zeros(400), _some(100), 100, 32, 1e-5),
        lambda x, o, w, n, b, e: _norm(x, w, e), 1, 32, (4,),
    ),
    Public(
        f"{CANDLE}/sort.cu", "asort_asc_f32", _made(_some(4, 64), _zeros(256, np.uint32), 64, 64),
        lambda x, o, n, p: x.argsort(-1).reshape(-1), 1, 64, (4,), 256,
    ),
    Public(
        f"{CANDLE}/fill.cu", "fill_f32", _made(_zeros(200), 2.5, 200), lambda o, v, n: np.full(200, v, F), 0,
    ),
    Public(
        f"{GGML}/softcap.cu", "softcap_f32", _made(_some(200), _zeros(200), 0.5, 3.0, 200),
        lambda x, o, s, c, n: np.tanh(s * x) * c, 1, include=_GGML,
    ),
    Public(
        f"{GGML}/opt-step-adamw.cu", "opt_step_adamw_f32",
        _made(_some(200), _some(200), _some(200), lambda rng: rng.random(200, F), lambda rng: _PARS.copy(), 200),
        _adamw, 0, include=_GGML,
    ),
    Public(
        "RWKV-CUDA/depthwise_conv1d/cuda/timex_cuda_v1.cu", "kernel_forward<float>",
        _made(_some(3, 64), _some(6, 64), _zeros(384), 0.1, 2, 3, 64), _timex, 2, 64, (1, 6), constants={"Tmax": 64},
    ),
)  # fmt: skip


def run(one: Public, folder: Path, rng: np.random.Generator) -> float:
    """Returns the largest error of the kernel, relative to the largest value. Raises SiloError: it does not run."""
    made = silo.cuda(
        folder / one.file,
        entry=one.entry,
        threads=one.threads,
        grid=one.grid,
        constants=one.constants,
        include=[folder / name for name in one.include],
        device_only=True,
        **({"shared": one.shared} if one.shared else {}),
    )
    given = one.arguments(rng)
    wanted = np.asarray(one.expected(*[value.copy() if isinstance(value, np.ndarray) else value for value in given]))
    checked = [value.copy() if isinstance(value, np.ndarray) else value for value in given]
    made(*given)
    found = given[one.out].reshape(-1)[: wanted.size].astype(np.float64)
    silo.check(made)(*checked)
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-30))


def main(words: list[str]) -> int:
    """Prints a line for each kernel, and returns 1 unless all are right."""
    folder, *only = words
    wrong = count = 0
    for one in KERNELS:
        name = f"{one.file}: {one.entry}"
        if only and not any(word in name for word in only):
            continue
        count += 1
        try:
            error = run(one, Path(folder), np.random.default_rng(7))
            said = f"error {error:.1e}" if error <= one.tolerance else f"WRONG by {error:.1e}"
        except SiloError as caught:
            said = f"NO: {' '.join(str(caught).split())[:300]}"
        wrong += not said.startswith("error")
        print(f"{name:78} {said}", flush=True)
    print(f"{count - wrong} of {count} are right, and a check finds nothing in them")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
