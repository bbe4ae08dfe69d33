"""The message for a kernel that fails with every config of its space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from silo.errors import TuneError
from silo.tuner.outcome import TuneOutcome
from silo.tuner.trial import Status, Trial

__all__ = ["TunedCase", "failure_of", "require_winners"]

_SHOWN = 4  # configs listed at most


@dataclass(frozen=True, slots=True)
class TunedCase:
    """How tuning one case of a kernel ended. ``elements`` of its arrays say how large it is."""

    kernel: str
    case: str
    elements: int
    outcome: TuneOutcome


def require_winners(cases: Sequence[TunedCase]) -> None:
    """``TuneError`` where a case has no config that can be used; see :func:`failure_of`."""
    if message := failure_of(cases):
        raise TuneError(message)


def failure_of(cases: Sequence[TunedCase]) -> str:
    """What is wrong where cases have no config that can be used, a paragraph a kernel; "" where all have one. Pure.

    Where every config's result is wrong it is the kernel or its case that is, so the smallest such case is shown with
    the largest difference there.
    """
    failed = [one for one in cases if one.outcome.winner is None]
    return "\n".join(
        _of_kernel([one for one in failed if one.kernel == kernel], sum(one.kernel == kernel for one in cases))
        for kernel in dict.fromkeys(one.kernel for one in failed)
    )


def _of_kernel(failed: Sequence[TunedCase], count: int) -> str:
    smallest = min(failed, key=lambda one: one.elements)
    outcome = smallest.outcome
    tried = {trial.config.order_key: trial for trial in outcome.trials if trial.status is not Status.OK}
    if not tried and outcome.fault_remark:
        return f"{smallest.kernel}: no config could be tried for the case {smallest.case}: {outcome.fault_remark}"
    if not tried:
        return (
            f"{smallest.kernel}: no config was tried for the case {smallest.case} (stopped: {outcome.stopped}); "
            "allow more time or evaluations"
        )
    wrong = [trial for trial in tried.values() if trial.status is Status.WRONG]
    size = f"{smallest.elements} elements"
    if len(wrong) < len(tried):
        return (
            f"{smallest.kernel}: none of the {len(tried)} configs that were tried can be used for {len(failed)} of "
            f"{count} cases; the smallest is {smallest.case} ({size}):{_listing(tuple(tried.values()))}"
        )
    worst = max(wrong, key=lambda trial: trial.max_error or 0.0)
    return (
        f"{smallest.kernel} is wrong with every config that was tried, for {len(failed)} of {count} cases; the "
        f"smallest is {smallest.case} ({size}), and the largest difference there {worst.max_error or 0.0:g}, with "
        f"{worst.config}:{_listing([worst, *(trial for trial in wrong if trial is not worst)])}\n"
        "  Correct the kernel (silo run --check finds accesses out of bounds, races and more) or what the case expects"
    )


def _listing(trials: Sequence[Trial]) -> str:
    lines = [f"\n  - {one.config}: {one.status.value}: {one.message or 'no message'}" for one in trials[:_SHOWN]]
    more = len(trials) - _SHOWN
    return "".join(lines) + (f"\n  - and {more} more" if more > 0 else "")
