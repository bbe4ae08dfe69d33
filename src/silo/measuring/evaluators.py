"""Evaluators with real compilers and devices, and the measurements that evaluators of one study share."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from silo.artifacts.artifact import Artifact
from silo.building.compilation import Compilation, Pending
from silo.core.config import Config
from silo.core.variant import Variant
from silo.errors import BlobLostError, CompileError, CompilerMissingError, LaunchError, SiloError
from silo.forks import Mutex
from silo.measuring.benches import Bench, ReferenceCode
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
    """The config some code was measured with, its samples and the reference's beside them, in nanoseconds.

    ``counts_ns`` is its median as it counts beside the reference.
    """

    config: Config
    samples: tuple[int, ...]
    counts_ns: int
    reference: ReferenceSamples | None = None


class Findings:
    """The best time so far, the reference, and what was measured of each code, by the sha256 of its blob.

    Configs that lead to the same code (a CPU ignores ``num_warps``) are one measurement: noise must not rank them.
    """

    def __init__(self) -> None:
        self._lock = Mutex()
        self._best_ns: int | None = None
        self._reference: ReferenceConfig | None = None
        self._first = Mutex()
        self._codes: dict[str, Future[Measured | None]] = {}

    @property
    def best_ns(self) -> int | None:
        """The smallest median as it counts, nanoseconds; None where nothing was measured."""
        return self._best_ns

    @property
    def known_reference(self) -> ReferenceConfig | None:
        """The reference where nobody names another, if it was measured."""
        return self._reference

    def reference(self, measured: Callable[[], ReferenceConfig]) -> ReferenceConfig:
        """The reference where nobody names another: the first config, which ``measured`` measures and returns.

        Called at most once until it returns; other threads wait meanwhile.
        """
        with self._first:
            if self._reference is None:
                self._reference = measured()
            return self._reference

    def claim(self, code: str) -> Measured | None:
        """The measurement of ``code``, once the thread at it is done; None: the caller measures and settles it."""
        while True:
            with self._lock:
                cell = self._codes.get(code)
                if cell is None:
                    self._codes[code] = Future()
                    return None
            found = cell.result()
            if found is not None:
                return found

    def hear(self, best_ns: int | None) -> None:
        """A time that was measured elsewhere, which the best so far is not above."""
        if best_ns is not None:
            with self._lock:
                self._best_ns = best_ns if self._best_ns is None else min(self._best_ns, best_ns)

    def take(self, code: str, found: Measured) -> None:
        """What was measured of ``code`` elsewhere; a measurement that was made here stays."""
        with self._lock:
            if code not in self._codes:
                self._codes[code] = Future()
                self._codes[code].set_result(found)

    def settle(self, code: str, found: Measured | None) -> None:
        """Say what came of a claim; None leaves it to the next."""
        with self._lock:
            cell = self._codes[code]
            if found is None:
                del self._codes[code]
            else:
                counts = found.counts_ns
                self._best_ns = counts if self._best_ns is None else min(self._best_ns, counts)
        cell.set_result(found)


# ---- Evaluators with real compilers and devices ----

T = TypeVar("T")

_log = logging.getLogger("silo")


@dataclass(frozen=True, slots=True)
class CompiledCandidate:
    """A config's artifact, its key ("" where a bundle has it), and how long compiling took."""

    artifact: Artifact
    key: str = ""
    compile_ns: int = 0


class CandidateArtifacts(Protocol):
    """Where artifacts of configs come from."""

    def expect(self, configs: Sequence[Config]) -> None:
        """They will be asked for: begin with what takes long, and return at once."""
        ...

    def prepare(self, configs: Sequence[Config]) -> None:
        """Start compiling; returns at once."""
        ...

    def get(self, config: Config) -> CompiledCandidate:
        """Await the artifact. Raises the config's own errors."""
        ...

    def forget(self, config: Config) -> None:
        """Its code is lost: make it again when it is asked for."""
        ...


@dataclass
class CompiledArtifacts:
    """Artifacts that are compiled when needed; any thread may ask. ``variant_of`` gives the variant of a config."""

    compilation: Compilation
    variant_of: Callable[[Config], Variant]
    _lock: Mutex = field(default_factory=Mutex)
    _pending: dict[bytes, Pending | SiloError] = field(default_factory=dict[bytes, "Pending | SiloError"])
    _found: dict[bytes, CompiledCandidate] = field(default_factory=dict[bytes, CompiledCandidate])

    def expect(self, configs: Sequence[Config]) -> None:
        """Start the workers. What is wrong with a config is said when it is prepared."""
        if self._pending:  # they are at work
            return
        with contextlib.suppress(SiloError):
            self.compilation.expect([self.variant_of(config) for config in configs])

    def prepare(self, configs: Sequence[Config]) -> None:
        """Lower here, and hand the jobs to the workers."""
        for config in configs:
            with self._lock:
                self._start(config)

    def _start(self, config: Config) -> Pending | SiloError:
        known = self._pending.get(config.order_key)
        if known is None:
            try:
                known = self.compilation.start(self.variant_of(config))
            except SiloError as error:
                known = error
            self._pending[config.order_key] = known
        return known

    def get(self, config: Config) -> CompiledCandidate:
        """See :class:`CandidateArtifacts`."""
        found = self._found.get(config.order_key)
        if found is not None:
            return found
        begin = time.monotonic_ns()
        with self._lock:
            pending = self._start(config)
        if isinstance(pending, SiloError):
            raise pending
        pending.wait()  # not under the lock: others have theirs to wait for
        with self._lock:
            artifact = self.compilation.finish(pending)
        compile_ns = time.monotonic_ns() - begin if pending.fresh else 0
        found = CompiledCandidate(artifact, pending.asked.artifact_key(pending.compiler), compile_ns)
        self._found[config.order_key] = found
        return found

    def forget(self, config: Config) -> None:
        """See :class:`CandidateArtifacts`."""
        with self._lock:
            known = self._pending.pop(config.order_key, None)
            self._found.pop(config.order_key, None)
            if isinstance(known, Pending):
                self.compilation.forget(known)


@dataclass(frozen=True)
class KnownArtifacts:
    """Artifacts that are there already, by the order key of their config."""

    artifacts: Mapping[bytes, Artifact]

    def expect(self, configs: Sequence[Config]) -> None:
        """Nothing to do: everything is compiled."""
        del configs

    def prepare(self, configs: Sequence[Config]) -> None:
        """Nothing to do: everything is compiled."""
        del configs

    def get(self, config: Config) -> CompiledCandidate:
        """See :class:`CandidateArtifacts`."""
        return CompiledCandidate(self.artifacts[config.order_key])

    def forget(self, config: Config) -> None:
        """A bundle loses nothing, and there is nobody to make it again."""
        del config


class BenchEvaluator:
    """Implements :class:`silo.tuner.evaluator.Evaluator`: checks each config on a bench, then measures it there.

    Args:
        study: what the trials have in common.
        artifacts: where compiled code comes from.
        bench: where it runs; closed with this object.
        check: says whether results are right; None compares them with the results of the first of ``configs`` that
            runs.
        configs: the space, for that comparison.
        findings: what it shares with the evaluators of other devices.
    """

    def __init__(
        self,
        study: Study,
        artifacts: CandidateArtifacts,
        bench: Bench,
        check: Check | None,
        configs: Sequence[Config],
        findings: Findings | None = None,
    ) -> None:
        self._study = study
        self._artifacts = artifacts
        self._bench = bench
        self._check = None if check is None else RememberingCheck(check)
        self._base = BaseCheck(self._results, configs)
        self._failed: dict[bytes, LaunchError] = {}
        self._findings = findings or Findings()

    def prepare(self, configs: Sequence[Config]) -> None:
        """Start compiling, and what the bench needs meanwhile."""
        # The workers, the bench's process and this one, which lowers, are all at work until the first config is ready.
        self._artifacts.expect(configs)
        self._bench.start()
        self._artifacts.prepare(configs)

    def spills(self, config: Config) -> int | None:
        """See :class:`silo.tuner.evaluator.Evaluator`."""
        return self._artifacts.get(config).artifact.launch.spills

    def evaluate(self, config: Config, reference: ReferenceConfig | None = None) -> Trial:
        """Await the artifact, check its result, measure it beside the reference, which is by default the first config.

        Code that left the store is compiled again.
        """
        return self._with_code([config, *self._beside(reference)], lambda: self._evaluated(config, reference))

    def _beside(self, reference: ReferenceConfig | None) -> list[Config]:
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
        found = self._artifacts.get(config)
        artifact = found.artifact
        comparison = self._compared(config)
        if not comparison.ok:
            return self._wrong(config, found, comparison)
        code = artifact.blob.sha256
        known, note = self._findings.claim(code), ""
        if known is None:
            measured: Measured | None = None
            try:
                taken, comparison, note = self._timed(config, artifact, comparison, reference)
                if not comparison.ok:
                    return self._wrong(config, found, comparison)
                known = measured = taken
            finally:
                self._findings.settle(code, measured)
        elif known.config != config:
            note = f"the same code as {known.config}"
        return self._study.trial(
            config,
            Status.OK,
            known.samples,
            compile_ns=found.compile_ns,
            message=note,
            artifact=found.key,
            max_error=comparison.max_error,
            resources=resources_of(artifact.launch),
            reference=known.reference,
        )

    def _timed(
        self, config: Config, artifact: Artifact, comparison: ResultComparison, reference: ReferenceConfig | None
    ) -> tuple[Measured, ResultComparison, str]:
        """Samples; a time too fast to be true is checked and measured once more, and then the second time counts."""
        best_ns = self._findings.best_ns
        taken = self._sampled(config, artifact, best_ns, reference)
        if best_ns is None or not is_suspicious([taken.counts_ns], best_ns):
            return taken, comparison, ""
        comparison = self._compared(config)
        if not comparison.ok:
            return taken, comparison, ""
        again = self._sampled(config, artifact, best_ns, reference)
        note = "" if is_suspicious([again.counts_ns], best_ns) else "measured twice: the first time was not repeated"
        return again, comparison, note

    def _sampled(
        self, config: Config, artifact: Artifact, best_ns: int | None, reference: ReferenceConfig | None
    ) -> Measured:
        """The samples of a config and of the reference beside it; the first config is its own reference."""
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
        """Its code; None if it does not compile any more: configs are measured alone then."""
        try:
            return ReferenceCode(reference, self._artifacts.get(reference.config).artifact)
        except CompilerMissingError:
            raise
        except CompileError as error:
            _log.info("%s is no reference any more: %s", reference.config, error)
            return None

    def _compared(self, config: Config) -> ResultComparison:
        return self._base.check(config) if self._check is None else self._check(self._results(config))

    def _wrong(self, config: Config, found: CompiledCandidate, comparison: ResultComparison) -> Trial:
        return self._study.trial(
            config,
            Status.WRONG,
            message=comparison.message,
            compile_ns=found.compile_ns,
            artifact=found.key,
            max_error=comparison.max_error,
        )

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """Measure finalists side by side. Code that left the store is compiled again."""
        return self._with_code(configs, lambda: self._side_by_side(configs))

    def _side_by_side(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        artifacts = {config: self._artifacts.get(config).artifact for config in configs}
        first: dict[str, Config] = {}
        for config in configs:
            first.setdefault(artifacts[config].blob.sha256, config)
        taken = self._bench.compare({config: artifacts[config] for config in first.values()})
        return {config: taken[first[artifacts[config].blob.sha256]] for config in configs}

    def _results(self, config: Config) -> Mapping[str, NDArray[Any]]:
        # A config that faulted or never ended does so again, and that is costly.
        if (known := self._failed.get(config.order_key)) is not None:
            raise known
        try:
            return self._with_code([config], lambda: self._bench.results(config, self._artifacts.get(config).artifact))
        except LaunchError as error:
            if not fault_of(error):
                self._failed[config.order_key] = error
            raise

    def interrupt(self) -> None:
        """See :class:`silo.tuner.evaluator.Evaluator`."""
        self._bench.interrupt()

    def close(self) -> None:
        """Close the bench."""
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
) -> Generator[Lanes]:
    """An evaluator on each bench, side by side, which share what they measured; see :class:`BenchEvaluator`."""
    findings = Findings()
    with ExitStack() as stack:
        made = [
            stack.enter_context(BenchEvaluator(study, artifacts, bench, check, configs, findings)) for bench in benches
        ]
        yield stack.enter_context(closing(make_lanes(made)))
