"""Decides which config a call uses, from the lock, the store and the tuning mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from silo.calls.candidate_filters import only_reason
from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import Target
from silo.errors import FrozenError
from silo.forks import Notices
from silo.measuring.lock_files import lock_of
from silo.settings import settings
from silo.tuner.explain import near_lines
from silo.tuner.lock import Advice
from silo.tuner.policy import Action, PolicyDecision, TuneMode, Unfinished, decide, read_effort
from silo.tuner.seeds import neighbours

if TYPE_CHECKING:
    from silo.building.call_context import CallContext
    from silo.building.kernel_declaration import DeclaredKernel
    from silo.measuring.study_key import StudyKey

__all__ = [
    "call_budget_s",
    "decide_call",
    "frozen_error",
    "lock_advice",
    "may_switch",
    "mode_of",
    "tuning_allowance_s",
    "unfinished",
]

# The seconds that one first call may spend on measuring. On a CPU, configs compile and run fast, and with many workers
# most of the promising configs are measured soon. Comparing the finalists, and the config that is running when the time
# ends, take additional time.
_BUDGET_S = 10.0
_CPU_BUDGET_S = 1.5
_SMALL_CPU_BUDGET_S = 4.0
_MANY_WORKERS = 8

_notices = Notices()  # logs why a lock was not used, each reason only once


def mode_of(kernel: DeclaredKernel) -> TuneMode:
    """Returns the kernel's tuning mode: its own ``tune=``, or else the setting."""
    return TuneMode(kernel.tune or settings().tune)


def decide_call(
    kernel: DeclaredKernel,
    study_key: StudyKey,
    context: CallContext,
    mode: TuneMode,
    can_measure: Callable[[], Decision],
    carry: Callable[[], tuple[Config, ...]],
    promising: Callable[[], Config | None],
) -> PolicyDecision:
    """Decides whether a call uses a known config, is tuned, or is refused.

    ``promising`` returns the config of a declared space that is worth trying first, or None. It is called in
    ``background`` mode, in which calls use that config until a first config is measured. ``carry`` returns configs that
    were good with an earlier compiler; if the present compiler makes the same code, ``carry`` also copies their trials
    to the call's study (:func:`silo.measuring.earlier_studies.carry_decision`). Both functions are called only for a
    study without a winner.

    In ``frozen`` mode with a lock, only the lock is read: every process that reads it launches the same config,
    regardless of its store.
    """
    # In leader mode, calls are decided by silo.calls.leader; this function serves explain() and other readers.
    if mode is TuneMode.LEADER:
        mode = TuneMode.CACHED
    if mode is TuneMode.BACKGROUND and not may_switch(context):
        mode = TuneMode.AUTO
    configs, only = context.candidates, only_reason(context)
    if mode is TuneMode.OFF or (len(configs) == 1 and not context.reach.refinable):
        return decide(mode, configs, heuristic=configs[0] if context.rule else None, only=only)
    locked = lock_advice(kernel, study_key, context)
    if locked is not None and locked[1].config is None:
        _log_unused_lock(kernel.name, *locked)
    advice = None if locked is None else locked[1]
    exact, predicted = _split(advice)
    if exact is not None or (mode is TuneMode.FROZEN and advice is not None):
        return decide(mode, configs, locked=exact, lock_rule=predicted)
    bucket = context.bucket
    winner = study_key.winner(context.specialization, bucket, context.reach)
    if winner is None and study_key.catch_up(context.specialization, bucket):
        winner = study_key.winner(context.specialization, bucket, context.reach)
    contenders: tuple[Config, ...] = ()
    if winner is None:
        contenders = carry()
        winner = study_key.winner(context.specialization, bucket, context.reach)
    if len(configs) == 1:
        return decide(mode, configs, bucket=winner.config if winner else None, only=only)
    rule = guess = None
    heuristic = configs[0] if context.rule else None
    if winner is None:
        if heuristic is None and mode is TuneMode.BACKGROUND:
            heuristic = promising()
        rules = study_key.rules(context.specialization, context.reach)
        if rules is not None:
            rule = rules.lookup([context.values[name] for name in study_key.key]).config
        elif mode is not TuneMode.FROZEN:
            guess = study_key.guess(context.specialization, bucket, context.searched)
    decided = partial(
        decide,
        mode,
        configs,
        lock_rule=predicted,
        bucket=winner.config if winner else None,
        earlier=next(iter(contenders), None),
        rule=rule,
        elsewhere=guess,
        heuristic=heuristic,
        unfinished=_to_go_on(study_key, context, mode) if winner is not None and mode.measures else "",
    )
    decision = decided()
    # The decision is made again with can_measure(), but only if the call would be tuned, because can_measure() may have
    # to lower the kernel.
    return decided(can_measure=can_measure()) if decision.action in (Action.TUNE, Action.BESIDE) else decision


def may_switch(context: CallContext) -> Decision:
    """Decides whether a process may change the config of calls like this one between two calls.

    Rejected in deterministic mode, and on every device but a CPU: a search on a GPU would share the GPU with the
    launches, and the change could happen during the capture of a graph.
    """
    if context.deterministic:
        return Rejected("a process in deterministic mode keeps its configs")
    if context.device.target.kind != "cpu":
        return Rejected(f"a search beside the program would share {context.device.target.kind} with its launches")
    return Accepted()


def unfinished(study_key: StudyKey, context: CallContext) -> Unfinished | None:
    """Returns the progress of a study that was cut off, or ended early, before its first calls measured every config.

    Returns None for other studies.
    """
    bucket = context.bucket
    effort = read_effort(study_key.study(context.specialization, bucket), study_key.records)
    if not (effort.is_cut_off or effort.ended_early):
        return None
    trials = study_key.trials(context.specialization, bucket)
    tried = {trial.config.order_key for trial in trials if trial.config in context.searched}
    allowed_s = tuning_allowance_s(context.device.target)
    return Unfinished(len(tried), context.searched.effort, effort.seconds, allowed_s, effort.ended_early)


def call_budget_s(target: Target) -> float:
    """Returns the seconds that one first call may spend on measuring: the setting, or a default for the device."""
    budget_s = settings().tune_budget_s
    if budget_s is not None:
        return budget_s
    if target.kind != "cpu":
        return _BUDGET_S
    return _CPU_BUDGET_S if settings().jobs >= _MANY_WORKERS else _SMALL_CPU_BUDGET_S


def tuning_allowance_s(target: Target) -> float:
    """Returns the seconds that all first calls together may spend on one study."""
    return max(settings().tune_total_s, call_budget_s(target))


def _to_go_on(study_key: StudyKey, context: CallContext, mode: TuneMode) -> str:
    progress = unfinished(study_key, context)
    if progress is None or not progress.goes_on or (progress.early and mode is not TuneMode.BACKGROUND):
        return ""
    return str(progress)


def _split(advice: Advice | None) -> tuple[Config | None, Config | None]:
    """Returns a lock's config for this study, and the config that the lock predicts from its other studies.

    At least one of the two is None.
    """
    if advice is None:
        return None, None
    return (advice.config, None) if advice.exact else (None, advice.config)


def lock_advice(kernel: DeclaredKernel, study_key: StudyKey, context: CallContext) -> tuple[Path, Advice] | None:
    """Returns the path of the lock and its advice on a call, or None without a lock."""
    lock_entry = lock_of(kernel)
    if lock_entry is None:
        return None
    path, lock = lock_entry
    study = study_key.study(context.specialization, context.bucket)
    return path, lock.advise(study, context.reach)


def _log_unused_lock(kernel: str, path: Path, advice: Advice) -> None:
    text = f"{kernel}: the lock {path} is not used: {advice.reason}"
    _notices.once(text, text)


def frozen_error(kernel: DeclaredKernel, study_key: StudyKey, context: CallContext) -> FrozenError:
    """Returns the error of a frozen call without a config; its text lists the nearest stored results."""
    study = study_key.study(context.specialization, context.bucket)
    locked = lock_advice(kernel, study_key, context)
    if locked is None:
        reason, near = "the store holds no measurement of it", neighbours(study, study_key.records)
        mend = "measure it (silo tune)"
    else:
        path, advice = locked
        reason, near = f"the lock {path} does not say: {advice.reason}", advice.refused
        mend = f"decide it (silo tune FILE --lock {path})"
    lines = [
        f"{study} ({study.device}): tuning is frozen and no config is known; {reason}",
        *near_lines(near),
        f"  {mend}, or set SILO_TUNE=cached to use the best guess",
    ]
    return FrozenError("\n".join(lines))
