"""The study key of a call: it gives the study of the call's bucket, and dispatch rules from other buckets' studies."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from silo.core.config import Config, ConfigSet
from silo.core.device import Target
from silo.core.dispatch import Bucket, DispatchRules
from silo.core.protocols import Device, RecordStore
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.values import identity_of
from silo.measuring.metric_plan import wanted_objective
from silo.tuner.generalization import Generalization, Sample, generalize
from silo.tuner.ledger import catch_up, read_trials, studies_of
from silo.tuner.measure import MeasurePolicy
from silo.tuner.objective import named
from silo.tuner.refine import ReachableConfigs
from silo.tuner.seeds import neighbours, seeds
from silo.tuner.trial import Status, Study, Trial
from silo.tuner.winner import Winner, choose_winner

__all__ = ["StudyKey", "measure_policy"]


def measure_policy(device: Device) -> str:
    """Returns the identity of a device's measurement policy, which is part of every study's key."""
    return MeasurePolicy.of(device.timing).identity


@dataclass(frozen=True)
class StudyKey:
    """The facts that all studies of one kernel on one device share; the studies differ in bucket and specialization."""

    kernel: str
    source: str
    signature: Signature
    target: Target
    compiler: str
    device: Device
    policy: str
    key: tuple[str, ...]
    records: RecordStore

    def study(self, specialization: Specialization, bucket: Bucket) -> Study:
        """Returns the study of one bucket."""
        return Study(
            kernel=self.kernel,
            source=self.source,
            signature=self.signature.without_effects(),
            specialization=specialization,
            target=self.target,
            compiler=self.compiler,
            bucket_names=self.key,
            bucket=bucket,
            device=self.device.model,
            policy=self.policy,
            driver=self.device.driver,
        )

    def trials(
        self, specialization: Specialization, bucket: Bucket, reach: ReachableConfigs | None = None
    ) -> tuple[Trial, ...]:
        """Returns the stored trials of one bucket; with ``reach``, only the trials of reachable configs."""
        trials = read_trials(self.study(specialization, bucket), self.records)
        return trials if reach is None else tuple(trial for trial in trials if trial.config in reach)

    def winner(
        self, specialization: Specialization, bucket: Bucket, reach: ReachableConfigs | None = None
    ) -> Winner | None:
        """Returns the winner among :meth:`trials`, or None."""
        return choose_winner(self.trials(specialization, bucket, reach), wanted_objective())

    def catch_up(self, specialization: Specialization, bucket: Bucket) -> bool:
        """Fetches the records of a bucket from the remote store, if one is set; returns whether any were new."""
        return catch_up(self.study(specialization, bucket), self.records)

    def failures(self, specialization: Specialization, bucket: Bucket) -> dict[bytes, str]:
        """Returns the reason why each failed config failed, by the config's order key."""
        trials = self.trials(specialization, bucket)
        return {
            trial.config.order_key: f"{trial.status.value}: {trial.message.splitlines()[0] if trial.message else ''}"
            for trial in trials
            if trial.status is not Status.OK
        }

    def known(self) -> tuple[Study, ...]:
        """Returns every stored study of this key, in the order in which they were begun."""
        return tuple(study for study in studies_of(self.kernel, self.records) if self._holds(study))

    def _holds(self, study: Study) -> bool:
        # a study of another kernel with this name, or of this kernel with another key
        if study.bucket_names != self.key:
            return False
        return study.key == self.study(study.specialization, study.bucket).key

    def rules(self, like: Specialization, reach: ReachableConfigs) -> DispatchRules | None:
        """Returns the rules of :meth:`generalization`, or None."""
        generalized = self.generalization(like, reach)
        return None if generalized is None else generalized.rules

    def generalization(self, like: Specialization, reach: ReachableConfigs) -> Generalization | None:
        """Makes dispatch rules from the winners of all buckets with the constexpr values and extents of ``like``.

        Returns None if no bucket was measured. Only trials of configs in ``reach`` count; the first config of the space
        is the fallback. If several studies of one bucket (with other alignments) were measured, the study that assumes
        most facts decides. The rules for buckets that were not measured are fitted to all of these trials, and may
        choose any of their configs (:mod:`silo.tuner.generalization`).
        """
        samples: dict[Bucket, Sample] = {}
        objective = wanted_objective()
        for study in sorted(self.known(), key=lambda study: len(study.specialization.facts)):
            if identity_of(study.specialization.constants) != identity_of(like.constants):
                continue
            if study.specialization.extents != like.extents:
                continue
            trials = self.trials(study.specialization, study.bucket, reach)
            sample = Sample.of_trials(study.bucket, trials, objective)
            if sample is not None:
                samples[study.bucket] = sample
        if not samples:
            return None
        tried = ConfigSet(config for sample in samples.values() for config, _ in sample.times)
        return generalize(self.key, tuple(samples.values()), reach.space.default, tried.listed, named(objective))

    def guess(self, specialization: Specialization, bucket: Bucket, configs: Container[Config]) -> Config | None:
        """Returns the config of ``configs`` that did best in the most similar studies, or None.

        These studies may be of other devices, drivers or compilers.
        """
        study = self.study(specialization, bucket)
        seeds_found = seeds(configs, neighbours(study, self.records), limit=1)
        return seeds_found[0].config if seeds_found else None
