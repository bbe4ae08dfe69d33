"""``silo tune --explain``: the configs that would be measured, and the reasons why stored results do not count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from silo.calls.decision import lock_advice
from silo.errors import CaseError
from silo.kernels.collection import collect_kernels
from silo.machine.device_plugins import device_named
from silo.machine.user_files import PlaceKind, kind_of
from silo.measuring.case_session_options import spill_limit_of, study_seeds
from silo.measuring.metric_plan import wanted_objective
from silo.tuner.explain import Explanation, explain_study
from silo.tuner.ledger import read_trials
from silo.tuner.seeds import neighbours
from silo.tuner.spilling import spills_above
from silo.tuning.case_tuning import CaseStudy, case_studies, device_of

__all__ = ["explain_case", "explain_tuning"]


def explain_tuning(
    path: Path, *, device: str | None = None, kernels: Sequence[str] | None = None, lock: Path | None = None
) -> list[tuple[str, Explanation]]:
    """Explains the study of each case of a Python file or module: its results, and why other results do not count.

    Raises:
        CaseError: without a case, or if the path is not a Python file.
    """
    if kind_of(path) is PlaceKind.BUNDLE:
        raise CaseError(f"{path}: kept results are explained for the kernels of a Python file; see also silo inspect")
    found = None if device is None else device_named(device)
    return [
        (study.case.label, explain_case(study, lock))
        for kernel in collect_kernels([path], kernels)
        for study in case_studies(kernel, device_of(kernel, found))
    ]


def explain_case(study: CaseStudy, lock: Path | None = None) -> Explanation:
    """Explains the study of one case. ``lock`` is the file that tuning would update, or None."""
    situation = study.situation
    problem = study.kernel.resolver.problem(situation)
    made = problem.study(situation.specialization, study.bucket)
    near, trials = neighbours(made, problem.records), read_trials(made, problem.records)
    tried = {trial.config.order_key for trial in trials}
    above = spills_above(made, problem.records, spill_limit_of(situation))
    said = lock_advice(study.kernel, problem, situation)
    text = ""
    if said is not None:
        path, advice = said
        text = f"{path}: " + (advice.reason if advice.config is None else f"{advice.config} ({advice.reason})")
    explained = explain_study(
        made,
        situation.searched,
        trials,
        near,
        study_seeds(made, situation.searched, problem.records, lock, near, tried),
        text,
        [trial.config for trial in trials if situation.reach.is_refined_form(trial.config)],
        above,
        wanted_objective(),
    )
    if explained.winner is not None:
        return explained
    others = problem.generalization(situation.specialization, situation.reach)
    if others is None:
        return explained
    expected = others.expect(tuple(situation.values[name] for name in problem.key))
    return replace(explained, unseen=f"{expected.config}, {expected}")
