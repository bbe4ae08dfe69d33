"""Liger's normalisations."""

import contextlib
from unittest import mock

import torch
from census_kinds import agree, kind, normal
from liger_kernel.ops import dyt as dyt_ops
from liger_kernel.ops.dyt import LigerDyTFunction
from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
from liger_kernel.ops.group_norm import LigerGroupNormFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.modulated_rms_norm import LigerModulatedRMSNormFunction
from liger_kernel.ops.poly_norm import LigerPolyNormFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from torch.nn import functional

EPS = 1e-5


def rms(x, eps=EPS):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps)


@kind("liger", "rms_norm")
def rms_norm():
    for casting, offset in (("llama", 0.0), ("gemma", 1.0), ("none", 0.0)):
        agree(
            lambda x, w, casting=casting, offset=offset: LigerRMSNormFunction.apply(x, w, EPS, offset, casting, False),
            lambda x, w, offset=offset: rms(x) * (w + offset),
            normal(3, 5, 300),
            normal(300, seed=1),
        )


@kind("liger", "rms_norm by blocks of rows")
def rms_norm_blocks():
    agree(
        lambda x, w: LigerRMSNormFunction.apply(x, w, EPS, 0.0, "llama", False),
        lambda x, w: rms(x) * w,
        normal(4096 * 8, 30),
        normal(30, seed=1),
        rtol=1e-3,
        atol=1e-3,
    )


@kind("liger", "fused_add_rms_norm")
def fused_add_rms_norm():
    def oracle(x, r, w):
        return rms(x + r) * w, x + r

    agree(
        lambda x, r, w: LigerFusedAddRMSNormFunction.apply(x, r, w, EPS, 0.0, "llama", False),
        oracle,
        normal(6, 200),
        normal(6, 200, seed=1),
        normal(200, seed=2),
    )


@kind("liger", "modulated_rms_norm")
def modulated_rms_norm():
    agree(
        lambda x, w, scale, shift: LigerModulatedRMSNormFunction.apply(x, w, scale, shift, EPS, 0.0, "llama", False),
        lambda x, w, scale, shift: rms(x) * w * (1 + scale) + shift,
        normal(2, 5, 200),
        normal(200, seed=1),
        normal(2, 1, 200, seed=2),
        normal(2, 1, 200, seed=3),
    )


@kind("liger", "poly_norm")
def poly_norm():
    agree(
        lambda x, w, b: LigerPolyNormFunction.apply(x, w, b, EPS, False),
        lambda x, w, b: w[0] * rms(x**3) + w[1] * rms(x**2) + w[2] * rms(x) + b,
        normal(6, 200),
        normal(3, seed=1),
        normal(1, seed=2)[0],
        rtol=1e-3,
        atol=1e-4,
    )


@kind("liger", "layer_norm")
def layer_norm():
    agree(
        lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, EPS),
        lambda x, w, b: functional.layer_norm(x, (300,), w, b, EPS),
        normal(4, 3, 300),
        normal(300, seed=1),
        normal(300, seed=2),
    )


@kind("liger", "group_norm")
def group_norm():
    agree(
        lambda x, w, b: LigerGroupNormFunction.apply(x, w, b, 12, 3, EPS),
        lambda x, w, b: functional.group_norm(x, 3, w, b, EPS),
        normal(2, 12, 33),
        normal(12, seed=1),
        normal(12, seed=2),
    )


def dyt(x, a, g, b):
    return g * torch.tanh(a * x) + b


DYT = (normal(5, 700), normal(1, seed=1), normal(700, seed=2), normal(700, seed=3))


def few_configs():
    """Two of the configs that Liger tunes over."""
    kernels = (dyt_ops._dyt_fwd_kernel, dyt_ops._dyt_bwd_kernel)
    patched = contextlib.ExitStack()
    for kernel in kernels:
        patched.enter_context(mock.patch.object(kernel, "configs", kernel.configs[:2]))
    return patched


@kind("liger", "dyt forward")
def dyt_forward():
    with few_configs():
        agree(LigerDyTFunction.apply, dyt, *DYT, backward=False)


@kind("liger", "dyt backward")
def dyt_backward():
    agree(LigerDyTFunction.apply, dyt, *DYT)


@kind("liger", "dyt backward, the kernel")
def dyt_backward_kernel():
    """As on a device whose cores Liger knows how to count."""
    with few_configs(), mock.patch.multiple(dyt_ops, infer_device=lambda: "npu", get_npu_core_count=lambda: 3):
        agree(LigerDyTFunction.apply, dyt, *DYT)
