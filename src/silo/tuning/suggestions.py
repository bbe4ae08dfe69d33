"""``silo tune --suggest``: the sizes of each kernel that are worth measuring next, by the trials that exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from silo.core.config import ConfigSet
from silo.core.dispatch import Bucket
from silo.core.values import JSON, Value, canonical_json, value_to_json
from silo.errors import TuneError
from silo.tuner.catalog import KeptStudy
from silo.tuner.generalization import Generalization, Sample, Suggestion, generalize, suggest
from silo.tuner.trial import Study
from silo.tuning.stored_studies import case_values, kept_studies

__all__ = ["KernelSuggestions", "generalizations", "suggest_sizes"]


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
        """Some lines of text for people."""
        count = len(self.generalization.samples)
        lines = [f"{self.kernel} on {self.target} ({self.device}): {count} measured sizes"]
        lines.append(f"  {self.generalization.text}")
        for one in self.sizes:
            loss = "unknown" if one.regret_ppm is None else f"about {one.regret_ppm / 10_000:.1f} %"
            lines.append(f"  measure {self._named(one.bucket)}: {one.reason}; predicted loss without it: {loss}")
        if not self.sizes:
            lines.append("  every size of its cases was measured, and none lies between them")
        return "\n".join(lines)

    def _named(self, bucket: Bucket) -> str:
        return ", ".join(f"{name}={value}" for name, value in zip(self.key, bucket, strict=True)) or "calls"

    def to_json(self) -> JSON:
        """The same facts as JSON, for programs. Losses are predictions, in millionths of a size's best time."""
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
                    "size": {name: value_to_json(value) for name, value in zip(self.key, one.bucket, strict=True)},
                    "predicted_loss_ppm": one.regret_ppm,
                    "reason": one.reason,
                }
                for one in self.sizes
            ],
        }


def suggest_sizes(
    path: Path, *, device: str | None = None, kernels: Sequence[str] | None = None, count: int = 5
) -> list[KernelSuggestions]:
    """The sizes worth measuring next for the kernels of a Python file, module or bundle. Measures nothing.

    Cases without trials come first, then sizes between and just beyond the measured ones, ``count`` of them for each
    kernel, device and signature.

    Raises:
        TuneError: without trials.
        SourceError, BundleError: the file cannot be read, or lacks the kernel.
        DeviceError: the device does not exist.
    """
    found = generalizations(kept_studies(path, device, kernels))
    if not found:
        raise TuneError(f"{path}: nothing was measured yet, so nothing can be learnt; begin with silo tune {path}")
    values = case_values(path, kernels)
    return [
        KernelSuggestions(
            study.kernel,
            study.device.name,
            str(study.target),
            study.bucket_names,
            one,
            suggest(one, _wanted(study, values.get(study.kernel, ())), count),
        )
        for study, one in found
    ]


def generalizations(studies: Sequence[KeptStudy]) -> list[tuple[Study, Generalization]]:
    """The generalization of studies that differ in their size alone, with one of them, for each group of such studies.

    Of several studies of one size (other alignments), the one with most facts counts. Groups without a winner are left
    out.
    """
    groups: dict[bytes, list[KeptStudy]] = {}
    for kept in studies:
        groups.setdefault(_group(kept.study), []).append(kept)
    found: list[tuple[Study, Generalization]] = []
    for group in groups.values():
        samples: dict[Bucket, Sample] = {}
        for kept in sorted(group, key=lambda kept: len(kept.study.specialization.facts)):
            sample = Sample.of_trials(kept.study.bucket, kept.trials)
            if sample is not None:
                samples[kept.study.bucket] = sample
        if samples:
            study, measured = group[0].study, tuple(samples.values())
            tried = ConfigSet(config for sample in measured for config, _ in sample.times)
            found.append((study, generalize(study.bucket_names, measured, measured[0].winner, tried.listed)))
    return found


def _group(study: Study) -> bytes:
    """The canonical form of all that sizes have in common."""
    members = study.to_json()
    assert isinstance(members, dict)
    constants: JSON = [[name, value_to_json(value)] for name, value in study.specialization.constants]
    extents: JSON = [[name, str(one)] for name, one in study.specialization.extents]
    return canonical_json({**members, "bucket": [], "specialization": [constants, extents]})


def _wanted(study: Study, cases: Sequence[dict[str, Value]]) -> list[Bucket]:
    """The sizes of the cases whose scalar arguments have every name of the key."""
    names = study.bucket_names
    return [tuple(case[name] for name in names) for case in cases if all(name in case for name in names)]
