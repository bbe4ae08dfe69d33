"""Evaluators: what tuning asks for, done with real compilers and devices."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from silo.api.arrays import is_array, restorer, to_host
from silo.api.compiling import Compilation, Pending
from silo.artifacts.artifact import Artifact
from silo.core.config import Config
from silo.core.protocols import Timer
from silo.core.signature import Signature
from silo.core.variant import Variant
from silo.errors import SiloError
from silo.tune.check import BaseCheck, Comparison
from silo.tune.measure import Contender, MeasurePolicy, interleave, measure
from silo.tune.statistics import median
from silo.tune.trial import Status, Study, Trial, resources_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CompiledEvaluator", "Workload", "contender_of", "live_check"]


@dataclass(frozen=True)
class Workload:
    """One call to measure: ``arguments`` by name, ``launcher_of`` gives a function that launches it with a config."""

    arguments: Mapping[str, object]
    launcher_of: Callable[[Config], Callable[[], object]]


@dataclass
class CompiledEvaluator:
    """Compiles configs ahead, checks each on a workload, measures it.

    ``check`` launches a config once on the workload's arguments in their first state and says whether the result is
    right; ``variant_of`` gives the variant of a config.
    """

    study: Study
    compilation: Compilation
    variant_of: Callable[[Config], Variant]
    workload: Workload
    check: Callable[[Config], Comparison]
    timer: Timer
    policy: MeasurePolicy
    _pending: dict[bytes, Pending | SiloError] = field(default_factory=dict[bytes, "Pending | SiloError"])
    _artifacts: dict[bytes, Artifact] = field(default_factory=dict[bytes, Artifact])
    _measured: dict[str, tuple[Config, tuple[int, ...]]] = field(
        default_factory=dict[str, "tuple[Config, tuple[int, ...]]"]
    )
    _best_ns: int | None = None

    def prepare(self, configs: Sequence[Config]) -> None:
        """Lower here, and hand the jobs to the workers."""
        for config in configs:
            if config.order_key not in self._pending:
                try:
                    self._pending[config.order_key] = self.compilation.start(self.variant_of(config))
                except SiloError as error:
                    self._pending[config.order_key] = error

    def evaluate(self, config: Config) -> Trial:
        """Await the artifact, check its result, measure it."""
        begin = time.monotonic_ns()
        self.prepare([config])
        pending = self._pending[config.order_key]
        if isinstance(pending, SiloError):
            raise pending
        was_there = pending.future is None
        artifact = self.compilation.finish(pending)
        self._artifacts[config.order_key] = artifact
        compile_ns = 0 if was_there else time.monotonic_ns() - begin
        key = pending.asked.artifact_key(pending.compiler)
        comparison = self.check(config)
        error = comparison.max_error
        if not comparison.ok:
            message = comparison.message
            return self.study.trial(
                config, Status.WRONG, message=message, compile_ns=compile_ns, artifact=key, max_error=error
            )
        # Configs that lead to the same code (a CPU ignores num_warps) are one measurement: noise must not rank them.
        twin, samples = self._measured.get(artifact.blob.sha256, (config, ()))
        if not samples:
            samples = measure(self._contender(config), self.timer, self.policy, best_ns=self._best_ns)
            self._measured[artifact.blob.sha256] = (config, samples)
        middle = median(samples)
        self._best_ns = middle if self._best_ns is None else min(self._best_ns, middle)
        return self.study.trial(
            config,
            Status.OK,
            samples,
            compile_ns=compile_ns,
            message="" if twin == config else f"the same code as {twin}",
            artifact=key,
            max_error=error,
            resources=resources_of(artifact.launch),
        )

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """Measure finalists side by side."""
        for config in configs:
            if config.order_key not in self._artifacts:
                self._artifacts[config.order_key] = self.compilation.artifact(self.variant_of(config))
        first: dict[str, Config] = {}
        for config in configs:
            first.setdefault(self._artifacts[config.order_key].blob.sha256, config)
        taken = interleave({config: self._contender(config) for config in first.values()}, self.timer, self.policy)
        return {config: taken[first[self._artifacts[config.order_key].blob.sha256]] for config in configs}

    def _contender(self, config: Config) -> Contender:
        signature = self._artifacts[config.order_key].variant.signature
        return contender_of(signature, self.workload.arguments, self.workload.launcher_of(config))


def contender_of(signature: Signature, arguments: Mapping[str, object], launch: Callable[[], object]) -> Contender:
    """Something to time: arguments that the kernel reads and writes are put back before each sample."""
    touched = [p.name for p in signature.parameters if p.effect.reads and p.effect.writes]
    restore = [restorer(arguments[name]) for name in touched if is_array(arguments.get(name))]

    def reset() -> None:
        for put_back in restore:
            put_back()

    return Contender(launch, reset if restore else None)


def live_check(workload: Workload, written: Sequence[str], configs: Sequence[Config]) -> Callable[[Config], Comparison]:
    """A check for live arguments without a case: every config against the first that runs, on the workload's copies."""
    put_back = [restorer(workload.arguments[name]) for name in written]

    def run(config: Config) -> Mapping[str, NDArray[Any]]:
        for restore in put_back:
            restore()
        workload.launcher_of(config)()
        return {name: to_host(workload.arguments[name]).copy() for name in written}

    return BaseCheck(run, configs).check
