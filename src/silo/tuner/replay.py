"""Recorded spaces: the outcome of every config, measured once, so that tuning can be replayed without a device."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from silo.core.config import Config, ConfigSet
from silo.core.device import DeviceModel, Target
from silo.core.protocols import Searcher
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.errors import TuneError
from silo.tuner.formats.result_files import read_results
from silo.tuner.search.searchers import ahead_of
from silo.tuner.session import FINISH_SHARE
from silo.tuner.statistics import ReferenceConfig, median
from silo.tuner.trial import Status, Study, Trial

__all__ = ["RecordedOutcome", "RecordedSpace", "ReplayEvaluator", "replay_search"]


@dataclass(frozen=True, slots=True)
class RecordedOutcome:
    """The recorded outcome of one config.

    ``compile_ns`` and ``bench_ns`` are the times that compiling and measuring it took, whether it failed or not.
    """

    status: Status
    samples_ns: tuple[int, ...]
    compile_ns: int
    bench_ns: int

    @property
    def average_ns(self) -> float | None:
        """The mean of the samples, which Kernel Tuner's searches minimize; None if the config failed."""
        return fmean(self.samples_ns) if self.samples_ns else None


@dataclass(frozen=True)
class RecordedSpace:
    """A space with the outcome of every config, by the config's order key."""

    kernel: str
    device: str
    configs: tuple[Config, ...]
    outcomes: Mapping[bytes, RecordedOutcome]

    @classmethod
    def load(cls, path: Path) -> RecordedSpace:
        """Reads a Kernel Tuner cache file (JSON, perhaps gzipped).

        The file of a run that was cut off has no closing brackets.

        Raises:
            TuneError: the file is no cache file.
        """
        results = read_results(path, "kernel-tuner")
        return cls(
            kernel=results.kernel,
            device=results.device,
            configs=tuple(trial.config for trial in results.trials),
            outcomes={
                trial.config.order_key: RecordedOutcome(
                    trial.status, trial.samples_ns, trial.compile_ns, trial.bench_ns
                )
                for trial in results.trials
            },
        )

    @property
    def optimum_ns(self) -> int:
        """The smallest median of all configs, in nanoseconds."""
        return min(median(outcome.samples_ns) for outcome in self.outcomes.values() if outcome.samples_ns)

    @property
    def best_average_ns(self) -> float:
        """The smallest mean of all configs, in nanoseconds, which Kernel Tuner calls the optimum."""
        return min(outcome.average_ns for outcome in self.outcomes.values() if outcome.average_ns is not None)

    def without_failures(self) -> RecordedSpace:
        """Returns the space of the configs that worked, the only ones that Kernel Tuner's own replay uses."""
        worked = {key: outcome for key, outcome in self.outcomes.items() if outcome.average_ns is not None}
        working_configs = tuple(config for config in self.configs if config.order_key in worked)
        return RecordedSpace(self.kernel, self.device, working_configs, worked)

    def study(self, policy: str = "replay/1") -> Study:
        """Returns a study for trials of this space. The device facts are 0, because cache files do not hold them."""
        return Study(
            kernel=self.kernel,
            source="",
            signature=Signature(()),
            specialization=Specialization(),
            target=Target("fake", "replay"),
            compiler="replay",
            bucket_names=(),
            bucket=(),
            device=DeviceModel("recorded", self.device, "", 0, 0),
            policy=policy,
        )


class ReplayEvaluator:
    """Returns outcomes of a recorded space instead of measuring. Implements :class:`silo.tuner.lanes.Evaluator`.

    ``clock`` is the session's clock: it advances only by the recorded cost of each config, so budgets in seconds mean
    the same as on the device. A failure costs as much as when it was recorded. ``samples`` is the number of recorded
    samples that an evaluation returns; a comparison of finalists returns all of them.
    """

    def __init__(self, space: RecordedSpace, study: Study | None = None, *, samples: int = 7) -> None:
        self._space = space
        self._study = study or space.study()
        self._samples = samples
        self._now = 0
        self.evaluations = 0

    def clock(self) -> int:
        """Returns the nanoseconds of recorded work so far."""
        return self._now

    def prepare(self, configs: Sequence[Config]) -> None:
        """Does nothing: the recorded time includes compiling."""

    def spills(self, config: Config) -> int | None:
        """Returns None, because the files hold no spill counts."""
        del config

    def evaluate(self, config: Config, reference: ReferenceConfig | None = None) -> Trial:
        """Returns the recorded outcome, without a reference. Raises TuneError for a config that is not in the space."""
        del reference
        outcome = self._outcome(config)
        self.evaluations += 1
        self._now += outcome.compile_ns + outcome.bench_ns
        return self._study.trial(
            config,
            outcome.status,
            outcome.samples_ns[: self._samples],
            compile_ns=outcome.compile_ns,
            message="" if outcome.status is Status.OK else "recorded as failed",
        )

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """Returns all recorded samples of each config."""
        outcomes = {config: self._outcome(config) for config in configs}
        self._now += sum(outcome.bench_ns for outcome in outcomes.values())
        return {config: outcome.samples_ns for config, outcome in outcomes.items()}

    def interrupt(self) -> None:
        """Does nothing, because ``evaluate`` returns at once."""

    def _outcome(self, config: Config) -> RecordedOutcome:
        try:
            return self._space.outcomes[config.order_key]
        except KeyError:
            raise TuneError(f"{config} is not in the recorded space of {self._space.kernel}") from None


def replay_search(
    space: RecordedSpace, searcher: Searcher, evaluations: int, *, ahead: int | None = None
) -> list[float | None]:
    """Returns the mean times that ``searcher`` observes within a budget of ``evaluations``; None for a failure.

    The times are in the order of observation. Like a session, this function takes ``ahead`` configs before it reports
    their outcomes, and announces the end of the budget. By default ``ahead`` is the number that a session takes for the
    default searcher of a large space.
    """
    if ahead is None:
        ahead = ahead_of("surrogate", ConfigSet(space.configs[:1]), evaluations)
    times: list[float | None] = []
    waiting: deque[Config] = deque()
    while True:
        asked_count = len(times) + len(waiting)
        if asked_count >= evaluations * FINISH_SHARE:
            searcher.finish()
        if room := min(ahead - len(waiting), evaluations - asked_count):
            waiting.extend(searcher.suggest(room))
        if not waiting:
            return times
        config = waiting.popleft()
        times.append(space.outcomes[config.order_key].average_ns)
        searcher.observe(config, times[-1])
