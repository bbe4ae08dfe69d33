"""The evaluator for real kernels: compile ahead, check, measure; whatever knows devices and arguments is passed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from silo.core.config import Config
from silo.errors import CompileError, LaunchError
from silo.tune.check import Comparison
from silo.tune.measure import Contender, MeasurePolicy, Timer, interleave, measure
from silo.tune.statistics import median
from silo.tune.trial import Status, Study, Trial

__all__ = ["Candidate", "Pending", "StagedEvaluator"]

# Loaded candidates kept for the comparison of finalists; the others are let go, and built again if they are needed.
_KEPT = 8


class Candidate(Protocol):
    """One config's artifact, loaded, with arguments to run on."""

    @property
    def artifact(self) -> str:
        """The artifact key."""
        ...

    @property
    def compile_ns(self) -> int:
        """Wall time of compiling it, 0 if it was kept already."""
        ...

    @property
    def resources(self) -> tuple[tuple[str, int], ...]:
        """What it occupies (:func:`silo.tune.trial.resources_of`)."""
        ...

    @property
    def contender(self) -> Contender:
        """What to time."""
        ...

    def check(self) -> Comparison:
        """Launch it once on fresh arguments and compare with what is expected. Raises LaunchError."""
        ...


class Pending(Protocol):
    """A candidate being built in the background."""

    def result(self) -> Candidate:
        """Wait for it. Raises CompileError, LaunchError."""
        ...


class StagedEvaluator:
    """Implements :class:`silo.tune.evaluator.Evaluator` over candidates.

    ``submit`` starts building a config's candidate and returns at once. The candidates of one study may share their
    arguments: one of them runs at a time, and each puts back what it writes before it is timed or checked.
    """

    def __init__(self, study: Study, submit: Callable[[Config], Pending], timer: Timer, policy: MeasurePolicy) -> None:
        if study.policy != policy.identity:
            raise ValueError(f"the study is kept under the policy {study.policy!r}, not {policy.identity!r}")
        self._study = study
        self._submit = submit
        self._timer = timer
        self._policy = policy
        self._pending: dict[bytes, Pending] = {}
        self._kept: dict[bytes, tuple[int, Candidate]] = {}

    def prepare(self, configs: Sequence[Config]) -> None:
        """Start building ``configs``."""
        for config in configs:
            if config.order_key not in self._pending:
                self._pending[config.order_key] = self._submit(config)

    def evaluate(self, config: Config) -> Trial:
        """Await the artifact, check its result, measure it."""
        candidate = self._build(config)
        try:
            checked = candidate.check()
            samples = self._measure(candidate) if checked.ok else ()
        except LaunchError as error:
            return self._study.failed(
                config, Status.RUN, str(error), compile_ns=candidate.compile_ns, artifact=candidate.artifact
            )
        if samples:
            self._keep(config, median(samples), candidate)
        return self._study.trial(
            config,
            Status.OK if checked.ok else Status.WRONG,
            samples,
            compile_ns=candidate.compile_ns,
            message=checked.message,
            artifact=candidate.artifact,
            max_error=checked.max_error,
            resources=candidate.resources,
        )

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """Measure ``configs`` side by side; without those that fail now."""
        missing = [config for config in configs if config.order_key not in self._kept]
        self.prepare(missing)
        candidates: dict[Config, Candidate] = {}
        for config in configs:
            kept = self._kept.get(config.order_key)
            try:
                candidate = kept[1] if kept else self._build(config)
                candidate.contender.launch()  # one that fails must not take the others down
            except (CompileError, LaunchError):
                continue
            candidates[config] = candidate
        contenders = {config: candidate.contender for config, candidate in candidates.items()}
        return interleave(contenders, self._timer, self._policy) if contenders else {}

    def _build(self, config: Config) -> Candidate:
        pending = self._pending.pop(config.order_key, None)
        return (pending or self._submit(config)).result()

    def _measure(self, candidate: Candidate) -> tuple[int, ...]:
        best = min((time for time, _ in self._kept.values()), default=None)
        return measure(candidate.contender, self._timer, self._policy, best_ns=best)

    def _keep(self, config: Config, time_ns: int, candidate: Candidate) -> None:
        self._kept[config.order_key] = (time_ns, candidate)
        if len(self._kept) > _KEPT:
            del self._kept[max(self._kept, key=lambda key: (self._kept[key][0], key))]
