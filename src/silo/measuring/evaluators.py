"""Evaluators with real compilers and devices, and the measurements that the evaluators of one study share."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from silo.artifacts.artifact import Artifact
from silo.building.compilation import Compilation, Pending
from silo.core.config import Config
from silo.core.variant import Variant
from silo.errors import BlobLostError, CompileError, CompilerMissingError, LaunchError, SiloError
from silo.forks import Mutex
from silo.measuring.benches import Bench, ReferenceCode
from silo.measuring.metric_plan import TIMES_ALONE, MetricPlan
from silo.tuner.failures import fault_of
from silo.tuner.lanes import Lanes, make_lanes
from silo.tuner.measure import is_suspicious
from silo.tuner.result_check import BaseCheck, Check, RememberingCheck, ResultComparison
from silo.tuner.statistics import ReferenceConfig, counted_samples, median
from silo.tuner.trial import ReferenceSamples, Status, Study, Trial, resources_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BenchEvaluator",
    "CandidateArtifacts",
    "CompiledArtifacts",
    "CompiledCandidate",
    "Findings",
    "KnownArtifacts",
    "Measured",
    "evaluators",
]

# ---- Measurements that the evaluators of one study share across their threads ----


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement of some code: the config that it ran with, its samples and the reference's, in nanoseconds.

    ``counts_ns`` is the median of the samples, each scaled as if the reference beside it had taken its nominal time.
    """

    config: Config
    samples: tuple[int, ...]
    counts_ns: int
    reference: ReferenceSamples | None = None
    metrics: tuple[tuple[str, tuple[float, ...]], ...] = ()


class Findings:
    """The best time, the reference, and the measurement of each code (by its blob's SHA-256), shared between threads.

    Configs that compile to the same code (a CPU ignores ``num_warps``) share one measurement, so that noise does not
    rank them.
    """

    def __init__(self) -> None:
        self._lock = Mutex()
        self._best_ns: int | None = None
        self._reference: ReferenceConfig | None = None
        self._first = Mutex()
        self._codes: dict[str, Future[Measured | None]] = {}

    @property
    def best_ns(self) -> int | None:
        """The smallest median time (``Measured.counts_ns``) of all measurements; None before the first one."""
        return self._best_ns

    @property
    def known_reference(self) -> ReferenceConfig | None:
        """The default reference; None while it has not been measured."""
        return self._reference

    def reference(self, measured: Callable[[], ReferenceConfig]) -> ReferenceConfig:
        """Returns the default reference. The first call measures it by calling ``measured``.

        If ``measured`` raises, the next call tries again. Other threads wait meanwhile.
        """
        with self._first:
            if self._reference is None:
                self._reference = measured()
            return self._reference

    def claim(self, code: str) -> Measured | None:
        """Returns the measurement of ``code``, or None if the caller must measure it and then call ``settle``.

        Waits if another thread is measuring the code.
        """
        while True:
            with self._lock:
                cell = self._codes.get(code)
                if cell is None:
                    self._codes[code] = Future()
                    return None
            measured = cell.result()
            if measured is not None:
                return measured

    def hear(self, best_ns: int | None) -> None:
        """Keeps ``best_ns``, a time that was measured elsewhere (by an agent), if it is the best so far."""
        if best_ns is not None:
            with self._lock:
                self._best_ns = best_ns if self._best_ns is None else min(self._best_ns, best_ns)

    def take(self, code: str, measured: Measured) -> None:
        """Adds a measurement of ``code`` that was made elsewhere (by an agent).

        A measurement of the same code that this process has made, or is making, takes precedence.
        """
        with self._lock:
            if code not in self._codes:
                self._codes[code] = Future()
                self._codes[code].set_result(measured)

    def settle(self, code: str, measured: Measured | None) -> None:
        """Ends a claim with its measurement, or with None, after which the next caller of ``claim`` must measure."""
        with self._lock:
            cell = self._codes[code]
            if measured is None:
                del self._codes[code]
            else:
                counts = measured.counts_ns
                self._best_ns = counts if self._best_ns is None else min(self._best_ns, counts)
        cell.set_result(measured)


# ---- Evaluators with real compilers and devices ----

T = TypeVar("T")

_log = logging.getLogger("silo")


@dataclass(frozen=True, slots=True)
class CompiledCandidate:
    """A config's artifact, its key ("" if it is from a bundle), and the nanoseconds that compiling it took."""

    artifact: Artifact
    key: str = ""
    compile_ns: int = 0


class CandidateArtifacts(Protocol):
    """The interface of a source of artifacts, which compiles them, receives them from a client, or has them already."""

    def expect(self, configs: Sequence[Config]) -> None:
        """Announces configs, so that slow preparations can begin; returns at once."""
        ...

    def prepare(self, configs: Sequence[Config]) -> None:
        """Starts compiling configs; returns at once."""
        ...

    def get(self, config: Config) -> CompiledCandidate:
        """Waits for the artifact of a config and returns it. Raises the errors that the config causes."""
        ...

    def forget(self, config: Config) -> None:
        """Forgets a config whose code is lost, so that the next ``get`` compiles the config again."""
        ...


@dataclass
class CompiledArtifacts:
    """Artifacts that are compiled on demand, from any thread. ``variant_of`` returns the variant of a config."""

    compilation: Compilation
    variant_of: Callable[[Config], Variant]
    _lock: Mutex = field(default_factory=Mutex)
    _pending: dict[bytes, Pending | SiloError] = field(default_factory=dict[bytes, "Pending | SiloError"])
    _candidates: dict[bytes, CompiledCandidate] = field(default_factory=dict[bytes, CompiledCandidate])

    def expect(self, configs: Sequence[Config]) -> None:
        """Starts the compile workers. An error of a config is raised when the config is used."""
        if self._pending:  # the workers were started earlier
            return
        with contextlib.suppress(SiloError):
            self.compilation.expect([self.variant_of(config) for config in configs])

    def prepare(self, configs: Sequence[Config]) -> None:
        """Lowers configs in this process, and hands the compile jobs to the workers."""
        for config in configs:
            with self._lock:
                self._start(config)

    def _start(self, config: Config) -> Pending | SiloError:
        pending = self._pending.get(config.order_key)
        if pending is None:
            try:
                pending = self.compilation.start(self.variant_of(config))
            except SiloError as error:
                pending = error
            self._pending[config.order_key] = pending
        return pending

    def get(self, config: Config) -> CompiledCandidate:
        """See :class:`CandidateArtifacts`."""
        candidate = self._candidates.get(config.order_key)
        if candidate is not None:
            return candidate
        begin = time.monotonic_ns()
        with self._lock:
            pending = self._start(config)
        if isinstance(pending, SiloError):
            raise pending
        # waits without holding the lock, because other threads need the lock to wait for other artifacts
        pending.wait()
        with self._lock:
            artifact = self.compilation.finish(pending)
        compile_ns = time.monotonic_ns() - begin if pending.fresh else 0
        candidate = CompiledCandidate(artifact, pending.asked.artifact_key(pending.compiler), compile_ns)
        self._candidates[config.order_key] = candidate
        return candidate

    def forget(self, config: Config) -> None:
        """See :class:`CandidateArtifacts`."""
        with self._lock:
            pending = self._pending.pop(config.order_key, None)
            self._candidates.pop(config.order_key, None)
            if isinstance(pending, Pending):
                self.compilation.forget(pending)


@dataclass(frozen=True)
class KnownArtifacts:
    """Artifacts that exist already, by the order key of their config."""

    artifacts: Mapping[bytes, Artifact]

    def expect(self, configs: Sequence[Config]) -> None:
        """Does nothing: all configs are compiled."""
        del configs

    def prepare(self, configs: Sequence[Config]) -> None:
        """Does nothing: all configs are compiled."""
        del configs

    def get(self, config: Config) -> CompiledCandidate:
        """See :class:`CandidateArtifacts`."""
        return CompiledCandidate(self.artifacts[config.order_key])

    def forget(self, config: Config) -> None:
        """Does nothing: code of a bundle cannot be lost, and cannot be compiled again."""
        del config


class BenchEvaluator:
    """Implements :class:`silo.tuner.lanes.Evaluator`: checks each config on a bench, then measures it there.

    Args:
        study: the study of the trials.
        artifacts: the source of compiled code.
        bench: runs the code; closed with this object.
        check: checks results; None compares them with the results of the first of ``configs`` that runs.
        configs: the configs of the space in order; used only if ``check`` is None.
        findings: measurements shared with the evaluators of other devices.
        metrics: the metrics to measure besides times.
    """

    def __init__(
        self,
        study: Study,
        artifacts: CandidateArtifacts,
        bench: Bench,
        check: Check | None,
        configs: Sequence[Config],
        findings: Findings | None = None,
        metrics: MetricPlan = TIMES_ALONE,
    ) -> None:
        self._metrics = metrics
        self._study = study
        self._artifacts = artifacts
        self._bench = bench
        self._check = None if check is None else RememberingCheck(check)
        self._base = BaseCheck(self._results, configs)
        self._failed: dict[bytes, LaunchError] = {}
        self._findings = findings or Findings()

    def prepare(self, configs: Sequence[Config]) -> None:
        """Starts compiling, and prepares the bench meanwhile."""
        # The compile workers and the bench's process start while this process lowers the variants.
        self._artifacts.expect(configs)
        self._bench.start()
        self._artifacts.prepare(configs)

    def spills(self, config: Config) -> int | None:
        """See :class:`silo.tuner.lanes.Evaluator`."""
        return self._artifacts.get(config).artifact.launch.spills

    def evaluate(self, config: Config, reference: ReferenceConfig | None = None) -> Trial:
        """Waits for the artifact, checks its result and measures it.

        Measuring takes turns with the reference, which is by default the first config. Code that the store has lost is
        compiled again.
        """
        return self._with_code(
            [config, *self._reference_configs(reference)], lambda: self._evaluated(config, reference)
        )

    def _reference_configs(self, reference: ReferenceConfig | None) -> list[Config]:
        reference = reference or self._findings.known_reference
        return [] if reference is None else [reference.config]

    def _with_code(self, configs: Sequence[Config], step: Callable[[], T]) -> T:
        try:
            return step()
        except BlobLostError as error:
            _log.info("%s", error)
            for config in configs:
                self._artifacts.forget(config)
            return step()

    def _evaluated(self, config: Config, reference: ReferenceConfig | None) -> Trial:
        compiled = self._artifacts.get(config)
        artifact = compiled.artifact
        comparison = self._compared(config)
        if not comparison.ok:
            return self._wrong(config, compiled, comparison)
        code = artifact.blob.sha256
        known_measurement, note = self._findings.claim(code), ""
        if known_measurement is None:
            measured: Measured | None = None
            try:
                timing, comparison, note = self._timed(config, artifact, comparison, reference)
                if not comparison.ok:
                    return self._wrong(config, compiled, comparison)
                known_measurement = measured = replace(timing, metrics=self._more(config, artifact, timing))
            finally:
                self._findings.settle(code, measured)
        elif known_measurement.config != config:
            note = f"the same code as {known_measurement.config}"
        return self._study.trial(
            config,
            Status.OK,
            known_measurement.samples,
            compile_ns=compiled.compile_ns,
            message=note,
            artifact=compiled.key,
            max_error=comparison.max_error,
            resources=resources_of(artifact.launch),
            reference=known_measurement.reference,
            metrics=known_measurement.metrics,
        )

    def _more(
        self, config: Config, artifact: Artifact, measured: Measured
    ) -> tuple[tuple[str, tuple[float, ...]], ...]:
        """Measures the samples of the metrics besides time."""
        return self._metrics.taken(
            measured.samples,
            lambda: self._bench.energy(config, artifact, median(measured.samples)),
            lambda: self._results(config),
            config,
        )

    def _timed(
        self, config: Config, artifact: Artifact, comparison: ResultComparison, reference: ReferenceConfig | None
    ) -> tuple[Measured, ResultComparison, str]:
        """Measures a config; returns the measurement, the latest check of its result, and a note for the trial.

        If a time is suspiciously short, the result is checked again, and a second measurement replaces the first.
        """
        best_ns = self._findings.best_ns
        measured = self._sampled(config, artifact, best_ns, reference)
        if best_ns is None or not is_suspicious([measured.counts_ns], best_ns):
            return measured, comparison, ""
        comparison = self._compared(config)
        if not comparison.ok:
            return measured, comparison, ""
        again = self._sampled(config, artifact, best_ns, reference)
        note = "" if is_suspicious([again.counts_ns], best_ns) else "measured twice: the first time was not repeated"
        return again, comparison, note

    def _sampled(
        self, config: Config, artifact: Artifact, best_ns: int | None, reference: ReferenceConfig | None
    ) -> Measured:
        """Measures the samples of a config and of the reference beside it. The first config is its own reference."""
        alone: list[Measured] = []

        def first() -> ReferenceConfig:
            samples = self._bench.measure(config, artifact, best_ns).samples
            alone.append(Measured(config, samples, median(samples), ReferenceSamples(config, samples)))
            return ReferenceConfig(config, median(samples))

        reference = reference or self._findings.reference(first)
        if alone:
            return alone[0]
        timing = self._bench.measure(config, artifact, best_ns, self._code_of(reference))
        if not timing.reference:
            return Measured(config, timing.samples, median(timing.samples))
        counted = counted_samples(timing.samples, timing.reference, reference.time_ns)
        return Measured(config, timing.samples, median(counted), ReferenceSamples(reference.config, timing.reference))

    def _code_of(self, reference: ReferenceConfig) -> ReferenceCode | None:
        """Returns the reference's code. If it no longer compiles, returns None, and configs are measured alone."""
        try:
            return ReferenceCode(reference, self._artifacts.get(reference.config).artifact)
        except CompilerMissingError:
            raise
        except CompileError as error:
            _log.info("%s is no reference any more: %s", reference.config, error)
            return None

    def _compared(self, config: Config) -> ResultComparison:
        return self._base.check(config) if self._check is None else self._check(self._results(config))

    def _wrong(self, config: Config, candidate: CompiledCandidate, comparison: ResultComparison) -> Trial:
        return self._study.trial(
            config,
            Status.WRONG,
            message=comparison.message,
            compile_ns=candidate.compile_ns,
            artifact=candidate.key,
            max_error=comparison.max_error,
        )

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """Returns samples of finalists, measured side by side. Code that the store has lost is compiled again."""
        return self._with_code(configs, lambda: self._side_by_side(configs))

    def _side_by_side(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        artifacts = {config: self._artifacts.get(config).artifact for config in configs}
        first: dict[str, Config] = {}
        for config in configs:
            first.setdefault(artifacts[config].blob.sha256, config)
        samples = self._bench.compare({config: artifacts[config] for config in first.values()})
        return {config: samples[first[artifacts[config].blob.sha256]] for config in configs}

    def _results(self, config: Config) -> Mapping[str, NDArray[Any]]:
        # A config that faulted or timed out would do so again, at the same cost.
        if (failure := self._failed.get(config.order_key)) is not None:
            raise failure
        try:
            return self._with_code([config], lambda: self._bench.results(config, self._artifacts.get(config).artifact))
        except LaunchError as error:
            if not fault_of(error):
                self._failed[config.order_key] = error
            raise

    def interrupt(self) -> None:
        """See :class:`silo.tuner.lanes.Evaluator`."""
        self._bench.interrupt()

    def close(self) -> None:
        """Closes the bench."""
        self._bench.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def evaluators(
    study: Study,
    artifacts: CandidateArtifacts,
    benches: Sequence[Bench],
    check: Check | None,
    configs: Sequence[Config],
    metrics: MetricPlan = TIMES_ALONE,
) -> Generator[Lanes]:
    """Makes an evaluator on each bench; they work side by side and share their measurements.

    See :class:`BenchEvaluator`.
    """
    findings = Findings()
    with ExitStack() as stack:
        lanes = [
            stack.enter_context(BenchEvaluator(study, artifacts, bench, check, configs, findings, metrics))
            for bench in benches
        ]
        yield stack.enter_context(closing(make_lanes(lanes)))
