"""``silo tune --explain`` and ``--suggest``: the configs that would be measured, and the sizes worth measuring next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from silo.calls.decision import lock_advice
from silo.core.config import ConfigSet
from silo.core.dispatch import Bucket
from silo.core.values import JSON, Value, canonical_json, value_to_json
from silo.errors import CaseError, TuneError
from silo.kernels.collection import collect_kernels
from silo.machine.device_plugins import device_named
from silo.machine.user_files import PlaceKind, kind_of
from silo.measuring.case_session_options import spill_limit_of, study_seeds
from silo.measuring.metric_plan import wanted_objective
from silo.tuner.explain import Explanation, explain_study
from silo.tuner.generalization import Generalization, Sample, Suggestion, generalize, suggest
from silo.tuner.ledger import KeptStudy, read_trials
from silo.tuner.seeds import neighbours
from silo.tuner.spilling import spills_above
from silo.tuner.trial import Study
from silo.tuning.case_tuning import CaseStudy, case_studies, device_of
from silo.tuning.stored_studies import case_values, kept_studies

__all__ = ["KernelSuggestions", "explain_case", "explain_tuning", "generalizations", "suggest_sizes"]


def explain_tuning(
    path: Path, *, device: str | None = None, kernels: Sequence[str] | None = None, lock: Path | None = None
) -> list[tuple[str, Explanation]]:
    """Explains the study of each case of a Python file or module: its results, and why other results do not count.

    Raises:
        CaseError: there is no case, or the path is not a Python file.
    """
    if kind_of(path) is PlaceKind.BUNDLE:
        raise CaseError(f"{path}: kept results are explained for the kernels of a Python file; see also silo inspect")
    device_given = None if device is None else device_named(device)
    return [
        (study.case.label, explain_case(study, lock))
        for kernel in collect_kernels([path], kernels)
        for study in case_studies(kernel, device_of(kernel, device_given))
    ]


def explain_case(study: CaseStudy, lock: Path | None = None) -> Explanation:
    """Explains the study of one case. ``lock`` is the file that tuning would update, or None."""
    situation = study.situation
    problem = study.kernel.resolver.problem(situation)
    full_study = problem.study(situation.specialization, study.bucket)
    near, trials = neighbours(full_study, problem.records), read_trials(full_study, problem.records)
    tried = {trial.config.order_key for trial in trials}
    above = spills_above(full_study, problem.records, spill_limit_of(situation))
    lock_advised = lock_advice(study.kernel, problem, situation)
    text = ""
    if lock_advised is not None:
        path, advice = lock_advised
        text = f"{path}: " + (advice.reason if advice.config is None else f"{advice.config} ({advice.reason})")
    explained = explain_study(
        full_study,
        situation.searched,
        trials,
        near,
        study_seeds(full_study, situation.searched, problem.records, lock, near, tried),
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


@dataclass(frozen=True)
class KernelSuggestions:
    """The sizes of one kernel on one device that are worth measuring, the most worthwhile first.

    ``generalization`` holds the rules for sizes that were not measured, learnt from the measured ones.
    """

    kernel: str
    device: str
    target: str
    key: tuple[str, ...]
    generalization: Generalization
    sizes: tuple[Suggestion, ...]

    @property
    def text(self) -> str:
        """The suggestions as several lines of text for people."""
        count = len(self.generalization.samples)
        lines = [f"{self.kernel} on {self.target} ({self.device}): {count} measured sizes"]
        lines.append(f"  {self.generalization.text}")
        for size in self.sizes:
            loss = "unknown" if size.regret_ppm is None else f"about {size.regret_ppm / 10_000:.1f} %"
            lines.append(f"  measure {self._named(size.bucket)}: {size.reason}; predicted loss without it: {loss}")
        if not self.sizes:
            lines.append("  every size of its cases was measured, and none lies between them")
        return "\n".join(lines)

    def _named(self, bucket: Bucket) -> str:
        return ", ".join(f"{name}={value}" for name, value in zip(self.key, bucket, strict=True)) or "calls"

    def to_json(self) -> JSON:
        """Returns the suggestions as JSON, for programs.

        Losses are predictions, in millionths of a size's best time.
        """
        fitted = self.generalization.fitted
        unseen = fitted.unseen
        winners = ConfigSet(step.config for step in unseen.steps).listed if unseen else ()
        return {
            "kernel": self.kernel,
            "device": self.device,
            "target": self.target,
            "measured": len(self.generalization.samples),
            "winners": [config.to_json() for config in winners],
            "held_out_list_ppm": fitted.list_ppm,
            "held_out_nearest_ppm": fitted.nearest_ppm,
            "reason": fitted.reason,
            "suggested": [
                {
                    "size": {name: value_to_json(value) for name, value in zip(self.key, size.bucket, strict=True)},
                    "predicted_loss_ppm": size.regret_ppm,
                    "reason": size.reason,
                }
                for size in self.sizes
            ],
        }


def suggest_sizes(
    path: Path, *, device: str | None = None, kernels: Sequence[str] | None = None, count: int = 5
) -> list[KernelSuggestions]:
    """Returns the sizes worth measuring next for the kernels of a Python file, module or bundle. Measures nothing.

    Sizes of cases without trials come first, then sizes between and just beyond the measured ones: ``count`` in all for
    each kernel, device and signature.

    Raises:
        TuneError: no study has trials.
        SourceError, BundleError: the file cannot be read, or lacks the kernel.
        DeviceError: the device does not exist.
    """
    study_generalizations = generalizations(kept_studies(path, device, kernels))
    if not study_generalizations:
        raise TuneError(f"{path}: nothing was measured yet, so nothing can be learnt; begin with silo tune {path}")
    values = case_values(path, kernels)
    return [
        KernelSuggestions(
            study.kernel,
            study.device.name,
            str(study.target),
            study.bucket_names,
            generalization,
            suggest(generalization, _sizes_of_cases(study, values.get(study.kernel, ())), count),
        )
        for study, generalization in study_generalizations
    ]


def generalizations(studies: Sequence[KeptStudy]) -> list[tuple[Study, Generalization]]:
    """Groups studies that differ only in their size; returns for each group one study, and the generalization of all.

    Of several studies of one size (with other alignments), the study that assumes most facts counts. Groups without a
    winner are left out.
    """
    groups: dict[bytes, list[KeptStudy]] = {}
    for kept_study in studies:
        groups.setdefault(_group(kept_study.study), []).append(kept_study)
    results: list[tuple[Study, Generalization]] = []
    for group in groups.values():
        samples: dict[Bucket, Sample] = {}
        for kept_study in sorted(group, key=lambda kept: len(kept.study.specialization.facts)):
            sample = Sample.of_trials(kept_study.study.bucket, kept_study.trials)
            if sample is not None:
                samples[kept_study.study.bucket] = sample
        if samples:
            study, measured = group[0].study, tuple(samples.values())
            tried = ConfigSet(config for sample in measured for config, _ in sample.times)
            results.append((study, generalize(study.bucket_names, measured, measured[0].winner, tried.listed)))
    return results


def _group(study: Study) -> bytes:
    """Returns the canonical form of everything that studies of one group have in common."""
    members = study.to_json()
    assert isinstance(members, dict)
    constants: JSON = [[name, value_to_json(value)] for name, value in study.specialization.constants]
    extents: JSON = [[name, str(extent)] for name, extent in study.specialization.extents]
    return canonical_json({**members, "bucket": [], "specialization": [constants, extents]})


def _sizes_of_cases(study: Study, cases: Sequence[dict[str, Value]]) -> list[Bucket]:
    """Returns the sizes of the cases that have a scalar argument for every name of the key."""
    names = study.bucket_names
    return [tuple(case[name] for name in names) for case in cases if all(name in case for name in names)]
