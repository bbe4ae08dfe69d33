"""Which trials a call's config is chosen from: the study of its bucket, and those of other buckets as rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from silo.core.config import Config
from silo.core.dispatch import Bucket, DispatchRules, bucket_from_json, bucket_of, bucket_to_json
from silo.core.keys import problem_key
from silo.core.protocols import Device, RecordStore
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.target import Target
from silo.core.values import Value
from silo.tune.ledger import read_trials
from silo.tune.measure import MeasurePolicy
from silo.tune.trial import Status, Study
from silo.tune.winner import Winner, choose_winner

__all__ = ["Problem", "measure_policy", "note_study"]


def measure_policy(device: Device) -> str:
    """The identity of how this device is measured, part of every trial's key."""
    return MeasurePolicy.of(device.timing).identity


def _index_key(study: Study) -> str:
    """The key of the list of buckets that were studied of one kernel, whatever the specialization."""
    return problem_key(
        study.source, study.signature.without_effects(), study.target, study.compiler, (study.policy,), study.device
    )


def note_study(study: Study, records: RecordStore) -> None:
    """Remember that a study has trials, so that calls of other buckets find and use them."""
    record = {"specialization": study.specialization.to_json(), "bucket": bucket_to_json(study.bucket)}
    key = _index_key(study)
    if record not in list(records.read(key)):
        records.append(key, record)


@dataclass(frozen=True)
class Problem:
    """One kernel, typed signature, target and device: its studies differ by bucket and specialization only."""

    kernel: str
    source: str
    signature: Signature
    target: Target
    compiler: str
    device: Device
    policy: str
    key: tuple[str, ...]
    records: RecordStore

    @property
    def index_key(self) -> str:
        """The key of the list of buckets that were ever studied."""
        return _index_key(self.study(Specialization(), ()))

    def study(self, specialization: Specialization, bucket: Bucket) -> Study:
        """The study of one bucket."""
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
        )

    def note(self, specialization: Specialization, bucket: Bucket) -> None:
        """Remember that this bucket is studied, so that calls of other buckets can learn from it."""
        note_study(self.study(specialization, bucket), self.records)

    def winner(
        self, specialization: Specialization, bucket: Bucket, configs: Sequence[Config] | None = None
    ) -> Winner | None:
        """The winner among the kept trials of one bucket; of ``configs`` only, where they are given."""
        trials = read_trials(self.study(specialization, bucket), self.records)
        if configs is not None:
            allowed = {config.order_key for config in configs}
            trials = tuple(trial for trial in trials if trial.config.order_key in allowed)
        return choose_winner(trials)

    def failures(self, specialization: Specialization, bucket: Bucket) -> dict[bytes, str]:
        """Why each config that failed did, by the config's order key."""
        trials = read_trials(self.study(specialization, bucket), self.records)
        return {
            trial.config.order_key: f"{trial.status.value}: {trial.message.splitlines()[0] if trial.message else ''}"
            for trial in trials
            if trial.status is not Status.OK
        }

    def known(self) -> tuple[tuple[Specialization, Bucket], ...]:
        """Every study there is, in the order it was first noted."""
        found: dict[str, tuple[Specialization, Bucket]] = {}
        for record in self.records.read(self.index_key):
            if isinstance(record, dict) and set(record) == {"specialization", "bucket"}:
                pair = Specialization.from_json(record["specialization"]), bucket_from_json(record["bucket"])
                found.setdefault(self.study(*pair).key, pair)
        return tuple(found.values())

    def rules(self, constants: Mapping[str, Value], configs: Sequence[Config]) -> DispatchRules | None:
        """Rules from the winners of every bucket studied with the same constexpr values; None where there is none.

        Winners come from ``configs``, whose first is the fallback. Of several studies of one bucket (other alignments),
        the one with most facts speaks.
        """
        table: dict[Bucket, Config] = {}
        studies = sorted(self.known(), key=lambda pair: len(pair[0].facts))
        for specialization, bucket in studies:
            if specialization.constant_values != dict(constants):
                continue
            winner = self.winner(specialization, bucket, configs)
            if winner is not None:
                table[bucket] = winner.config
        return DispatchRules.of(self.key, table, configs[0]) if table else None

    def bucket(self, values: Mapping[str, Value]) -> Bucket:
        """The bucket of a call by the values of its key arguments."""
        return bucket_of([values[name] for name in self.key])
