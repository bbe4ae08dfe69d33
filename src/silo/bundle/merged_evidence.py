"""Decides between the configs of bundles that are joined.

Trials count only if both bundles have trials for the same bucket, device model, driver and measurement policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from silo.bundle.contents import RulesKey
from silo.core.config import Config
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.dispatch import Bucket, bucket_to_json
from silo.core.values import JSON, canonical_json
from silo.errors import BundleError
from silo.tuner.trial import Study, Trial
from silo.tuner.winner import choose_winner

if TYPE_CHECKING:
    from silo.tuner.statistics import Estimate

__all__ = ["Evidence", "faster_by_trials"]

_Place = tuple[str, bytes]  # the rules' key, and the bucket
_Machine = tuple[str, str, str]  # the device model, the measurement policy, the driver's version


@dataclass(frozen=True, slots=True)
class Evidence:
    """The trials of one compiler's code in a bundle, grouped by the calls and the machine that they belong to."""

    trials: Mapping[_Place, Mapping[_Machine, Sequence[Trial]]] = field(
        default_factory=dict[_Place, Mapping[_Machine, Sequence[Trial]]]
    )

    @classmethod
    def of(cls, documents: Iterable[JSON], compilers: Iterable[str]) -> Evidence:
        """Reads the trials in a bundle's documents whose studies were made with one of ``compilers``.

        Raises:
            BundleError: a document is not a trial.
        """
        compiler_set = set(compilers)
        trials: dict[_Place, dict[_Machine, list[Trial]]] = {}
        for document in documents:
            members = document if isinstance(document, dict) else {}
            try:
                study, trial = Study.from_json(members["study"]), Trial.from_json(members["trial"])
            except (ValueError, TypeError, KeyError) as error:
                raise BundleError(f"a trial cannot be read, so the bundles are not joined: {error}") from None
            if study.compiler not in compiler_set:
                continue
            machine = str(study.device), study.policy, study.driver
            trials.setdefault(_place_of(_key_of(study), study.bucket), {}).setdefault(machine, []).append(trial)
        return cls(trials)

    def times(self, key: RulesKey, bucket: Bucket, config: Config) -> Mapping[_Machine, Estimate]:
        """Returns the time of a config on each machine that measured it for these calls."""
        times: dict[_Machine, Estimate] = {}
        for machine, trials in self.trials.get(_place_of(key, bucket), {}).items():
            winner = choose_winner(trials)
            if winner is None:
                continue
            if winner.config.order_key == config.order_key:
                times[machine] = winner.time
            for runner_up in winner.runners_up:
                if runner_up.config.order_key == config.order_key:
                    times[machine] = runner_up.time
        return times


def _key_of(study: Study) -> RulesKey:
    return study.target, study.signature, study.specialization.extents


def _place_of(key: RulesKey, bucket: Bucket) -> _Place:
    target, signature, extents = key
    return repr((target, signature.without_effects(), extents)), canonical_json(bucket_to_json(bucket))


def faster_by_trials(own_times: Mapping[_Machine, Estimate], theirs: Mapping[_Machine, Estimate]) -> Decision:
    """Decides whether code with the times ``theirs`` replaces code with the times ``own_times``.

    Accepted if, on at least one machine that measured both, the confidence interval of ``theirs`` lies wholly below the
    interval of ``own_times``, and on no machine wholly above.
    """
    shared = [machine for machine in own_times if machine in theirs]
    if not shared:
        return Rejected("no device model, driver and policy measured both")
    worse = [
        common_machine for common_machine in shared if theirs[common_machine].low_ns > own_times[common_machine].high_ns
    ]
    better = [
        common_machine for common_machine in shared if theirs[common_machine].high_ns < own_times[common_machine].low_ns
    ]
    compared = (better or worse or shared)[0]
    text = f"{theirs[compared].median_ns} ns and {own_times[compared].median_ns} ns on {compared[0]}, measured apart"
    if better and not worse:
        return Accepted(text)
    return Rejected(f"slower on {worse[0][0]}: {text}" if worse else f"{text}, do not separate them")
