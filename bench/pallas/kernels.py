"""The kernels that are timed, with every way to call each."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as lowering

import silo
from silo import ArgSpec

SIZE, BLOCK = 1 << 16, 1 << 12
TILE_M, TILE_N, TILE_K = 128, 256, 64
WARPS, STAGES = 8, 4


@dataclass
class Ways:
    """The calls by name, and ``settle``, which waits for their work. ``absent`` has the reason for each missing way."""

    calls: dict[str, Callable[[], object]]
    settle: Callable[[], object]
    absent: dict[str, str] = field(default_factory=dict)


def add(x: Any, y: Any, out: Any) -> None:
    """Add one block of x and y."""
    out[...] = x[...] + y[...]


def matmul(x: Any, y: Any, out: Any) -> None:
    """Compute one tile of a matrix product."""

    def step(k: Any, total: Any) -> Any:
        part = pl.ds(k * TILE_K, TILE_K)
        return total + jnp.dot(x[:, part], y[part, :], preferred_element_type=jnp.float32)

    total = jnp.zeros(out.shape, jnp.float32)
    out[...] = jax.lax.fori_loop(0, x.shape[1] // TILE_K, step, total).astype(out.dtype)


def additions(device: str) -> Ways:
    """Return the ways to add two vectors."""
    spec = ArgSpec(block=(BLOCK,), dims=(0,))
    own = silo.pallas(add, args=[spec, spec, ArgSpec(block=(BLOCK,), dims=(0,), role="out")], grid=(SIZE // BLOCK,))
    x, y, out = (torch.randn(SIZE, device=device) for _ in range(3))
    blocks = pl.BlockSpec((BLOCK,), lambda i: (i,))
    said: dict[str, Any] = (
        {"interpret": True} if device == "cpu" else {"compiler_params": lowering.CompilerParams(4, 3)}
    )
    call = jax.jit(
        pl.pallas_call(
            add,
            grid=(SIZE // BLOCK,),
            in_specs=[blocks, blocks],
            out_specs=blocks,
            out_shape=jax.ShapeDtypeStruct((SIZE,), jnp.float32),
            **said,
        )
    )
    where = jax.devices(device)[0]
    a, b = jax.device_put(x.cpu().numpy(), where), jax.device_put(y.cpu().numpy(), where)
    last: list[Any] = [a]

    def by_jit() -> None:
        last[0] = call(a, b)

    def by_dlpack() -> None:
        result = call(jax.dlpack.from_dlpack(x), jax.dlpack.from_dlpack(y))
        out.copy_(torch.from_dlpack(result))

    def settle() -> None:
        last[0].block_until_ready()
        if device == "cuda":
            torch.cuda.synchronize()

    ways = Ways({}, settle)
    ways.calls["silo, torch tensors"] = lambda: own(x, y, out)
    bound = own.bind(x, y, out)
    ways.calls["silo, bound, torch tensors"] = lambda: bound(x, y, out)
    ways.calls["jax.jit, jax arrays"] = by_jit
    ways.calls["jax.jit, torch tensors by DLPack"] = by_dlpack
    name = "plgpu.as_torch_kernel, torch tensors"
    try:
        from jax.experimental.pallas import mosaic_gpu as plgpu  # jax has no such module on the CPU

        if device == "cpu":
            ways.absent[name] = "it is for GPUs"
        else:
            ways.calls[name] = _as_torch(plgpu, x, y)
    except Exception as error:  # noqa: BLE001  # of an interface that changes: the row is missing then
        ways.absent[name] = f"{type(error).__name__}: {error}"
    own(x, y, out)
    if not torch.equal(out, x + y):
        raise RuntimeError("the sum is wrong")
    return ways


def _as_torch(plgpu: Any, x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    def body(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
        part = pl.ds(jax.lax.axis_index("i") * BLOCK, BLOCK)
        out_ref[part] = x_ref[part] + y_ref[part]

    made = plgpu.as_torch_kernel(
        plgpu.kernel(
            body,
            out_type=jax.ShapeDtypeStruct((SIZE,), jnp.float32),
            grid=(SIZE // BLOCK,),
            grid_names=("i",),
        )
    )
    made(x, y)
    return lambda: made(x, y)


def products(size: int) -> Ways:
    """Return the ways to multiply square float16 matrices on a GPU."""
    own = silo.pallas(
        matmul,
        args=[
            ArgSpec(block=(TILE_M, None), dims=(0, None)),
            ArgSpec(block=(None, TILE_N), dims=(None, 1)),
            ArgSpec(block=(TILE_M, TILE_N), dims=(0, 1), role="out"),
        ],
        space=[{"num_warps": WARPS, "num_stages": STAGES}],
        grid=(size // TILE_M, size // TILE_N),
    )
    x, y = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    out = torch.empty_like(x)
    call = jax.jit(
        pl.pallas_call(
            matmul,
            grid=(size // TILE_M, size // TILE_N),
            in_specs=[
                pl.BlockSpec((TILE_M, size), lambda i, _: (i, 0)),
                pl.BlockSpec((size, TILE_N), lambda _, j: (0, j)),
            ],
            out_specs=pl.BlockSpec((TILE_M, TILE_N), lambda i, j: (i, j)),
            out_shape=jax.ShapeDtypeStruct((size, size), jnp.float16),
            compiler_params=lowering.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        )
    )
    where = jax.devices("cuda")[0]
    a, b = jax.device_put(x.cpu().numpy(), where), jax.device_put(y.cpu().numpy(), where)
    last: list[Any] = [a]

    def by_jit() -> None:
        last[0] = call(a, b)

    def settle() -> None:
        last[0].block_until_ready()
        torch.cuda.synchronize()

    own(x, y, out)
    if not torch.allclose(out, x @ y, rtol=2e-2, atol=1.0):
        raise RuntimeError("the product is wrong")
    return Ways({"silo": lambda: own(x, y, out), "jax.jit": by_jit}, settle)
