"""Liger's losses fused with the projection before them."""

import torch
from census_kinds import agree, constant, kind, normal
from census_liger_losses import IGNORED, divergence, labels
from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction
from liger_kernel.ops.fused_linear_jsd import LigerFusedLinearJSDFunction
from liger_kernel.ops.fused_linear_kl_div import LigerFusedLinearKLDivFunction
from torch.nn import functional

ROWS, HIDDEN, CLASSES = 9, 64, 300


def weight(seed=1):
    return normal(CLASSES, HIDDEN, seed=seed) / 8


@kind("liger", "fused_linear_cross_entropy")
def fused_linear_cross_entropy():
    agree(
        lambda x, w, y, b: LigerFusedLinearCrossEntropyFunction.apply(x, w, y, b)[0],
        lambda x, w, y, b: functional.cross_entropy(functional.linear(x, w, b), y),
        normal(ROWS, HIDDEN),
        weight(),
        labels(ROWS, CLASSES),
        normal(CLASSES, seed=2),
    )


@kind("liger", "fused_linear_jsd")
def fused_linear_jsd():
    def oracle(x, w, teacher, teacher_weight, y):
        log_q = torch.log_softmax(x @ w.T / 1.5, -1)
        log_p = torch.log_softmax(teacher @ teacher_weight.T / 1.5, -1)
        counted = y != IGNORED
        return (divergence(log_q, log_p, 0.4) * counted).sum() / counted.sum()

    agree(
        lambda x, w, t, u, y: LigerFusedLinearJSDFunction.apply(x, w, t, u, y, 0.4, IGNORED, 1.5),
        oracle,
        normal(ROWS, HIDDEN),
        weight(),
        constant(normal(ROWS, 2 * HIDDEN, seed=3)),
        constant(normal(CLASSES, 2 * HIDDEN, seed=4) / 8),
        labels(ROWS, CLASSES),
    )


@kind("liger", "fused_linear_kl_div")
def fused_linear_kl_div():
    def oracle(x, w, target):
        return functional.kl_div(torch.log_softmax(x @ w.T / 1.5, -1), target, reduction="batchmean")

    agree(
        lambda x, w, t: LigerFusedLinearKLDivFunction.apply(x, w, t, None, "batchmean", IGNORED, 1.5),
        oracle,
        normal(ROWS, HIDDEN),
        weight(),
        constant(torch.softmax(normal(ROWS, CLASSES, seed=5), -1)),
    )
