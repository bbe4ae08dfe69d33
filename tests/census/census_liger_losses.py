"""Liger's losses over logits and distributions."""

import torch
from census_kinds import agree, close, constant, kind, normal
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.fused_ce_tvd import LigerFusedCETVDFunction
from liger_kernel.ops.grpo_loss import GrpoLossFunction, fused_selective_log_softmax
from liger_kernel.ops.jsd import LigerJSDFunction
from liger_kernel.ops.kl_div import LigerKLDivLossFunction
from liger_kernel.ops.tvd import LigerTVDLossFunction
from liger_kernel.ops.vocab_parallel_cross_entropy import LigerVocabParallelCEFunction
from torch.nn import functional

ROWS, CLASSES, IGNORED = 7, 700, -100


def labels(rows=ROWS, classes=CLASSES, ignored=True):
    chosen = torch.randint(0, classes, (rows,), generator=torch.Generator().manual_seed(5))
    if ignored:
        chosen[2] = IGNORED
    return chosen


@kind("liger", "cross_entropy")
def cross_entropy():
    for reduction, smoothing in (("mean", 0.0), ("sum", 0.1), ("none", 0.0)):
        agree(
            lambda x, y, r=reduction, s=smoothing: LigerCrossEntropyFunction.apply(x, y, None, IGNORED, 0.0, s, r)[0],
            lambda x, y, r=reduction, s=smoothing: functional.cross_entropy(x, y, reduction=r, label_smoothing=s),
            normal(ROWS, CLASSES),
            labels(),
        )


@kind("liger", "cross_entropy with class weights")
def cross_entropy_weighted():
    agree(
        lambda x, y, w: LigerCrossEntropyFunction.apply(x, y, w)[0],
        functional.cross_entropy,
        normal(ROWS, CLASSES),
        labels(),
        constant(normal(CLASSES, seed=1).abs()),
    )


@kind("liger", "cross_entropy with soft cap, z loss and predictions")
def cross_entropy_extended():
    def oracle(x, y):
        capped = 30 * torch.tanh(x / 30)
        counted = y != IGNORED
        z = 0.1 * torch.logsumexp(capped, -1) ** 2 * counted
        return functional.cross_entropy(capped, y) + z.sum() / counted.sum(), z.sum().detach() / counted.sum()

    def ours(x, y):
        loss, z, accuracy, predicted = LigerCrossEntropyFunction.apply(
            x, y, None, IGNORED, 0.1, 0.0, "mean", 30.0, True, True, True
        )
        found.append((accuracy, predicted))
        return loss, z.detach()

    found = []
    x, y = 5 * normal(ROWS, CLASSES), labels()
    y[4] = x[4].argmax()
    agree(ours, oracle, x, y)
    accuracy, predicted = found[0]
    counted = y != IGNORED
    assert torch.equal(predicted[counted], x.argmax(-1)[counted])
    close(accuracy, (x.argmax(-1) == y)[counted].double().mean(), what="accuracy")


@kind("liger", "vocab_parallel_cross_entropy")
def vocab_parallel_cross_entropy():
    agree(
        lambda x, y: LigerVocabParallelCEFunction.apply(x, y, None, IGNORED, 0.1, "pytorch", "global"),
        lambda x, y: functional.cross_entropy(x.flatten(0, 1), y.flatten(), reduction="none", label_smoothing=0.1).view(
            y.shape
        ),
        normal(4, 3, CLASSES),
        labels(12).view(4, 3),
    )


@kind("liger", "kl_div")
def kl_div():
    for log_target, reduction in ((False, "batchmean"), (True, "sum"), (False, "none")):
        target = torch.softmax(normal(ROWS, CLASSES, seed=1), -1)
        agree(
            lambda y, t, r=reduction, log=log_target: LigerKLDivLossFunction.apply(y, t, r, log),
            lambda y, t, r=reduction, log=log_target: functional.kl_div(y, t, reduction=r, log_target=log),
            torch.log_softmax(normal(ROWS, CLASSES), -1),
            constant(target.log() if log_target else target),
        )


def divergence(log_q, log_p, beta):
    p, q = log_p.exp(), log_q.exp()
    if beta == 0:
        return (p * (log_p - log_q)).sum(-1)
    if beta == 1:
        return (q * (log_q - log_p)).sum(-1)
    log_m = torch.log(beta * p + (1 - beta) * q)
    return (beta * p * (log_p - log_m) + (1 - beta) * q * (log_q - log_m)).sum(-1)


@kind("liger", "jsd")
def jsd():
    for beta in (0.0, 0.3, 1.0):
        agree(
            lambda q, p, y, beta=beta: LigerJSDFunction.apply(q, p, y, beta, IGNORED),
            lambda q, p, y, beta=beta: (divergence(q, p, beta) * (y != IGNORED)).sum() / (y != IGNORED).sum(),
            torch.log_softmax(normal(ROWS, CLASSES), -1),
            constant(torch.log_softmax(normal(ROWS, CLASSES, seed=1), -1)),
            labels(),
        )


@kind("liger", "tvd")
def tvd():
    def oracle(p, q, y):
        counted = y != IGNORED
        return (0.5 * (p - q).abs().sum(-1) * counted).sum() / counted.sum()

    agree(
        lambda p, q, y: LigerTVDLossFunction.apply(p, q, y, "batchmean", IGNORED),
        oracle,
        torch.softmax(normal(ROWS, CLASSES), -1),
        constant(torch.softmax(normal(ROWS, CLASSES, seed=1), -1)),
        labels(),
    )


@kind("liger", "cross entropy and total variation in one")
def fused_ce_tvd():
    def oracle(student, teacher, y):
        counted = y != IGNORED
        entropy = functional.cross_entropy(student, y, reduction="none")
        distance = 0.5 * (torch.softmax(student, -1) - torch.softmax(teacher, -1)).abs().sum(-1)
        return entropy, distance * counted

    agree(
        lambda student, teacher, y: LigerFusedCETVDFunction.apply(student, teacher, y, IGNORED),
        oracle,
        normal(ROWS, CLASSES),
        constant(normal(ROWS, CLASSES, seed=1)),
        labels(),
    )


# -- policy losses ---------------------------------------------------------------------------------------------------

BATCH, LENGTH, TEMPERATURE, BETA = 3, 5, 0.9, 0.04


def policy_inputs():
    generator = torch.Generator().manual_seed(8)
    ids = torch.randint(0, CLASSES, (BATCH, LENGTH), generator=generator)
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[1, 3:] = 0
    logits = normal(BATCH, LENGTH + 1, CLASSES)
    chosen = token_logs(logits.double(), ids)
    old = constant((chosen + 0.2 * normal(BATCH, LENGTH, seed=2)).float())
    reference = constant((chosen + 0.2 * normal(BATCH, LENGTH, seed=3)).float())
    return logits, old, reference, ids, constant(normal(BATCH, seed=4)), mask


def token_logs(logits, ids):
    return torch.log_softmax(logits[:, :-1] / TEMPERATURE, -1).gather(-1, ids[..., None])[..., 0]


def policy(loss_of):
    def oracle(logits, old, reference, ids, advantages, mask):
        logs, advantages = token_logs(logits, ids), advantages[:, None]
        loss, clipped = loss_of(logs, logs - old, advantages, mask)
        kl = torch.exp(reference - logs) - (reference - logs) - 1
        loss = ((loss + BETA * kl) * mask).sum(-1) / mask.sum(-1)
        return loss.mean(), ((kl * mask).sum() / mask.sum()).detach(), (clipped * mask).sum() / mask.sum()

    return oracle


def clipped_ratio(ratio, advantages):
    loss = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    low, high = (ratio < 0.8) & (advantages < 0), (ratio > 1.2) & (advantages > 0)
    return loss, (low | high).double()


def ours(level, loss_type):
    def run(logits, old, reference, ids, advantages, mask):
        loss, kl, clipped = GrpoLossFunction.apply(
            logits,
            old,
            reference,
            ids,
            advantages,
            mask,
            TEMPERATURE,
            BETA,
            0.2,
            0.2,
            False,
            loss_type,
            None,
            True,
            level,
        )
        return loss, kl.detach(), clipped.detach()

    return run


@kind("liger", "selective log softmax")
def selective_log_softmax():
    logits, _, _, ids, _, mask = policy_inputs()
    found = fused_selective_log_softmax(logits, ids, TEMPERATURE, mask)
    close(found, token_logs(logits.double(), ids) * mask)


@kind("liger", "grpo_loss by token")
def grpo_by_token():
    def loss_of(_logs, change, advantages, _mask):
        return clipped_ratio(change.exp(), advantages)

    agree(ours("token", "grpo"), policy(loss_of), *policy_inputs())


@kind("liger", "grpo_loss by sequence")
def grpo_by_sequence():
    def loss_of(_logs, change, advantages, mask):
        ratio = ((change * mask).sum(-1) / mask.sum(-1)).exp()[:, None]
        loss, clipped = clipped_ratio(ratio, advantages)
        return loss.expand_as(mask), clipped.expand_as(mask)

    agree(ours("sequence", "grpo"), policy(loss_of), *policy_inputs())


@kind("liger", "grpo_loss, sapo")
def sapo():
    def loss_of(_logs, change, advantages, _mask):
        heat = torch.where(advantages > 0, 1.0, 1.05)
        gate = torch.sigmoid(heat * (change.exp() - 1)) * 4 / heat
        return -gate * advantages, torch.zeros_like(change)

    agree(ours("token", "sapo"), policy(loss_of), *policy_inputs())
