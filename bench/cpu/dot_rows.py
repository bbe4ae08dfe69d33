"""The rows of the CPU benchmark whose kernels use ``tl.dot``."""

from __future__ import annotations

import kernels
import torch
from torch.nn import functional

from bench.cpu import dot_kernels as more
from bench.cpu.work import Call, Scale, Workload, empty, normal

DEPTH = 64
EDGES = {"full": (777, 333, 555), "quick": (233, 111, 185), "tiny": (77, 33, 55)}
SIZES = {"full": 1024, "quick": 256, "tiny": 128}
HEADS = {"full": (8, 1024), "quick": (2, 256), "tiny": (1, 128)}
FLASH = {"BLOCK_M": 64, "BLOCK_N": 64}
# Tolerances by dtype; in fp32, sums of a thousand products with terms of either sign lose precision.
SUMS = {"fp32": 2e-5, "fp16": 2e-3, "bf16": 1.6e-2}


def matmul(scale: Scale, dtype: str) -> Workload:
    n = SIZES[scale]
    return _matmul("matmul", dtype, n, n, n)


def edge_matmul(scale: Scale, dtype: str) -> Workload:
    """A matrix product with sizes that are no multiples of any tile."""
    return _matmul("edge matmul", dtype, *EDGES[scale])


def _matmul(name: str, dtype: str, m: int, n: int, k: int) -> Workload:
    a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype)
    c, other = normal(m, n, dtype=dtype), normal(m, n, dtype=dtype)

    def compiled(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        torch.mm(a, b, out=c)

    return Workload(
        name,
        dtype,
        f"{m}x{n}x{k}",
        m * n * k,
        (
            Call(
                kernels.matmul,
                (a, b, c, m, n, k, k, 1, n, 1, n, 1),
                (-(-m // 64) * -(-n // 64),),
                {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8},
                {"ACTIVATION": ""},
            ),
        ),
        lambda: torch.matmul(a, b, out=other),
        (compiled, (a, b, other)),
        lambda: {"c": (c, a.double() @ b.double())},
        tolerance=SUMS[dtype],
    )


def grouped_matmul(scale: Scale, dtype: str) -> Workload:
    n = SIZES[scale]
    problems = [(n, n, n), (n // 2, n, n // 2), (n // 4, n // 2, n), (n // 8, n // 4, n // 2)]
    a = [normal(rows, depth, dtype=dtype) for rows, _, depth in problems]
    b = [normal(depth, columns, dtype=dtype) for _, columns, depth in problems]
    c, other = ([empty(rows, columns, dtype=dtype) for rows, columns, _ in problems] for _ in range(2))
    addresses = [torch.tensor([one.data_ptr() for one in group]) for group in (a, b, c)]
    sizes = torch.tensor(problems, dtype=torch.int32)
    strides = torch.tensor([(depth, columns, columns) for _, columns, depth in problems], dtype=torch.int32)

    def compiled(a: list[torch.Tensor], b: list[torch.Tensor], c: list[torch.Tensor]) -> None:
        for left, right, out in zip(a, b, c, strict=True):
            torch.mm(left, right, out=out)

    return Workload(
        "grouped matmul",
        dtype,
        f"4x{n}",
        sum(rows * columns * depth for rows, columns, depth in problems),
        (
            Call(
                more.grouped_matmul,
                (*addresses, sizes, strides, len(problems), a[0]),
                (16,),
                {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64},
                {"PROGRAMS": 16},
            ),
        ),
        lambda: compiled(a, b, other),
        (compiled, (a, b, other)),
        lambda: {
            str(index): (found, left.double() @ right.double())
            for index, (left, right, found) in enumerate(zip(a, b, c, strict=True))
        },
        tolerance=SUMS[dtype],
    )


def attention(scale: Scale, dtype: str) -> Workload:
    """The example's attention kernel, with a causal mask."""
    heads, length = HEADS[scale]
    q, k, v, out = (normal(heads, length, DEPTH, dtype=dtype) for _ in range(4))
    call = Call(
        kernels.attention,
        (q, k, v, out, DEPTH**-0.5, heads, length),
        (length // 64, heads),
        FLASH,
        {"D": DEPTH},
    )
    return _attention("attention", dtype, (q, k, v), out, call, causal=True)


def flash(scale: Scale, dtype: str) -> Workload:
    """Flash attention without a mask."""
    return _flash("flash", scale, dtype, causal=False)


def causal_flash(scale: Scale, dtype: str) -> Workload:
    """Flash attention with a causal mask."""
    return _flash("causal flash", scale, dtype, causal=True)


def _flash(name: str, scale: Scale, dtype: str, *, causal: bool) -> Workload:
    heads, length = HEADS[scale]
    q, k, v, out = (normal(heads, length, DEPTH, dtype=dtype) for _ in range(4))
    lse = empty(heads, length)
    call = _forward(q, k, v, out, lse, causal=causal)
    return _attention(name, dtype, (q, k, v), out, call, causal=causal)


def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, *, causal: bool
) -> Call:
    heads, length = q.shape[:2]
    return Call(
        more.flash_forward,
        (q, k, v, out, lse, DEPTH**-0.5, heads, length),
        (length // 64, heads),
        FLASH,
        {"CAUSAL": causal, "D": DEPTH},
    )


def _attention(
    name: str,
    dtype: str,
    operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    out: torch.Tensor,
    call: Call,
    *,
    causal: bool,
) -> Workload:
    heads, length = out.shape[:2]

    def peer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0]

    # In causal attention the first rows average few keys, so that their values and errors are far larger than the mean:
    # the kernels round the weights to the dtype of the operands before they multiply them with the values.
    return Workload(
        name,
        dtype,
        f"{heads}x{length}x{DEPTH}",
        heads * length * length * DEPTH,
        (call,),
        lambda: peer(*operands),
        (peer, operands),
        lambda: {"out": (out, peer(*(one.double() for one in operands)))},
        tolerance=SUMS[dtype] * (2 if causal else 1),
    )


def flash_backward(scale: Scale, dtype: str) -> Workload:
    """The gradients of flash attention with a causal mask, by three launches."""
    heads, length = HEADS[scale]
    q, k, v, grad, out, dq, dk, dv = (normal(heads, length, DEPTH, dtype=dtype) for _ in range(8))
    lse, delta = empty(heads, length), empty(heads, length)
    factor, flags = DEPTH**-0.5, {"CAUSAL": True, "D": DEPTH}
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001  # what eager calls
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward  # noqa: SLF001
    batch = [one[None] for one in (grad, q, k, v)]
    known, sums = forward(*batch[1:], is_causal=True)
    out.copy_(known[0])
    lse.copy_(sums[0])
    shared = (q, k, v, grad, lse, delta)

    def results() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        wide = [one.double().requires_grad_() for one in (q, k, v)]
        found = functional.scaled_dot_product_attention(wide[0][None], wide[1][None], wide[2][None], is_causal=True)[0]
        wanted = torch.autograd.grad(found, wide, grad.double())
        return dict(zip(("dq", "dk", "dv"), zip((dq, dk, dv), wanted, strict=True), strict=True))

    return Workload(
        "flash backward",
        dtype,
        f"{heads}x{length}x{DEPTH}",
        heads * length * length * DEPTH,
        (
            Call(
                more.flash_delta,
                (out, grad, delta, heads, length),
                (length // 64, heads),
                {"BLOCK_M": 64},
                {"D": DEPTH},
            ),
            Call(
                more.flash_backward_keys,
                (*shared, dk, dv, factor, heads, length),
                (length // 64, heads),
                FLASH,
                flags,
            ),
            Call(
                more.flash_backward_queries,
                (*shared, dq, factor, heads, length),
                (length // 64, heads),
                FLASH,
                flags,
            ),
        ),
        lambda: backward(*batch, known, sums, dropout_p=0.0, is_causal=True),
        None,
        results,
        tolerance=4 * SUMS[dtype],
    )
