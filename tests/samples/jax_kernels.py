"""Silo kernels for programs of jax: add, softmax and layer norm with gradients, and a few of other shapes."""
# pyright: reportMissingImports=false

import jax
import jax.numpy as jnp
import triton
import triton.language as tl

import silo


@silo.kernel(space={"BLOCK": [256]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), tune="off")
@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@silo.kernel(grid=lambda a: (a.m,), tune="off")
@triton.jit
def softmax_kernel(x, out, m, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * n + i, e / tl.sum(e, axis=0), mask=i < n)


@silo.kernel(grid=lambda a: (a.m,), tune="off")
@triton.jit
def softmax_backward_kernel(y, grad, out, m, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(y + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    g = tl.load(grad + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(out + row * n + i, v * (g - tl.sum(v * g, axis=0)), mask=i < n)


@silo.kernel(grid=lambda a: (a.m,), tune="off")
@triton.jit
def layer_norm_kernel(x, weight, bias, out, mean, scale, m, n, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    average = tl.sum(v, axis=0) / n
    centred = tl.where(i < n, v - average, 0.0)
    factor = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
    w = tl.load(weight + i, mask=i < n, other=0.0).to(tl.float32)
    b = tl.load(bias + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(out + row * n + i, centred * factor * w + b, mask=i < n)
    tl.store(mean + row, average)
    tl.store(scale + row, factor)


@silo.kernel(space={"BLOCK": [256]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), tune="off")
@triton.jit
def axpy_kernel(x, y, n, alpha, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(y + i, mask=i < n) + alpha * tl.load(x + i, mask=i < n), mask=i < n)


@silo.kernel(space={"BLOCK": [64]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), tune="off")
@triton.jit
def sum_and_difference_kernel(x, low, y, high, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i, mask=i < n), tl.load(y + i, mask=i < n)
    tl.store(low + i, a - b, mask=i < n)
    tl.store(high + i, a + b, mask=i < n)


@silo.kernel(grid=(1,), tune="off")
@triton.jit
def all_scalars_kernel(out, flag, whole, wide, real, nothing, WORD: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.where(i == 0, whole, 0.0) + tl.where(i == 1, real, 0.0) + tl.where(i == 2, (wide >> 32).to(tl.float32), 0.0)
    if flag:
        v += 100.0
    if nothing is None:
        v += 1000.0
    if WORD == "ten":
        v += 10.0
    tl.store(out + i, v)


def add(x, y, **more):
    return silo.jax_call(add_kernel, x, y, x.size, out={"out": "x"}, **more)


def block_of(x):
    return triton.next_power_of_2(x.shape[-1])


def _softmax(x, **more):
    return silo.jax_call(softmax_kernel, x, *x.shape, BLOCK=block_of(x), out={"out": "x"}, **more)


@jax.custom_vjp
def softmax(x):
    return _softmax(x)


def _softmax_forward(x):
    y = _softmax(x)
    return y, y


def _softmax_backward(y, grad):
    return (silo.jax_call(softmax_backward_kernel, y, grad, *y.shape, BLOCK=block_of(y), out={"out": "y"}),)


softmax.defvjp(_softmax_forward, _softmax_backward)


def _layer_norm(x, weight, bias, eps=1e-5):
    m, n = x.shape
    row = jax.ShapeDtypeStruct((m,), jnp.float32)
    return silo.jax_call(
        layer_norm_kernel, x, weight, bias, m, n, eps, BLOCK=block_of(x), out={"out": "x", "mean": row, "scale": row}
    )


@jax.custom_vjp
def layer_norm(x, weight, bias):
    return _layer_norm(x, weight, bias)[0]


def _layer_norm_forward(x, weight, bias):
    out, mean, scale = _layer_norm(x, weight, bias)
    return out, (x, weight, mean, scale)


def _layer_norm_backward(kept, grad):
    x, weight, mean, scale = kept
    normal = (x - mean[:, None]) * scale[:, None]
    scaled = grad * weight
    inner = scaled - scaled.mean(1, keepdims=True) - normal * (scaled * normal).mean(1, keepdims=True)
    return inner * scale[:, None], (grad * normal).sum(0), grad.sum(0)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


def layer_norm_of_jax(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * weight + bias


@jax.custom_vjp
def added(x, y):
    return add(x, y)


added.defvjp(lambda x, y: (add(x, y), None), lambda _, grad: (grad, grad))
