"""Measuring without a device: times are functions of the config, so that every process measures the same."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fake_backend.device import FAKE_MODEL, FAKE_TARGET
from silo.core.config import Config
from silo.core.device import DeviceModel
from silo.core.dispatch import bucket_of
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.errors import CompileError
from silo.tuner.statistics import ReferenceConfig
from silo.tuner.trial import Status, Study, Trial

__all__ = ["FAKE_POLICY", "FakeEvaluator", "FakeLandscape", "fake_study"]

FAKE_POLICY = "fake/1"


def fake_study(
    kernel: str = "add",
    *,
    device: DeviceModel = FAKE_MODEL,
    policy: str = FAKE_POLICY,
    compiler: str = "fake 1",
    driver: str = "",
    n: int = 1 << 20,
) -> Study:
    """Return a study of a kernel on the fake device; its key is ``n``."""
    return Study(
        kernel=kernel,
        source="0" * 64,
        signature=Signature(()),
        specialization=Specialization(),
        target=FAKE_TARGET,
        compiler=compiler,
        bucket_names=("n",),
        bucket=bucket_of((n,)),
        device=device,
        policy=policy,
        driver=driver,
    )


@dataclass(frozen=True)
class FakeLandscape:
    """Made-up times and failures of configs.

    Each config takes ``base_ns`` plus up to as much again, by a hash of ``seed`` and config; ``optimum``, if given,
    takes half of ``base_ns``. Samples scatter by up to ``noise_permille`` to either side, also by a hash. The configs
    in ``failures`` fail with the given status. Of the other configs, except the optimum, ``failing_permille`` fail, by
    a hash. ``spills`` is the number of values that the code of a config keeps in local memory; 0 for other configs.
    """

    seed: str = "landscape"
    optimum: Config | None = None
    base_ns: int = 100_000
    noise_permille: int = 0
    failures: Mapping[Config, Status] = field(default_factory=dict[Config, Status])
    failing_permille: int = 0
    spills: Mapping[Config, int] = field(default_factory=dict[Config, int])

    def time_ns(self, config: Config) -> int:
        """Return the true time of one launch in nanoseconds."""
        if self.optimum is not None and config.order_key == self.optimum.order_key:
            return self.base_ns // 2
        return self.base_ns + self._hash(config, "time") % self.base_ns

    def status(self, config: Config) -> Status:
        """Return the status of a trial of the config."""
        if config in self.failures:
            return self.failures[config]
        if self.optimum is not None and config.order_key == self.optimum.order_key:
            return Status.OK
        if self._hash(config, "fails") % 1000 < self.failing_permille:
            kinds = (Status.COMPILE, Status.TIMEOUT, Status.RUN, Status.WRONG)
            return kinds[self._hash(config, "kind") % len(kinds)]
        return Status.OK

    def samples(self, config: Config, count: int, stage: str) -> tuple[int, ...]:
        """Return ``count`` samples; another ``stage`` has other samples."""
        true = self.time_ns(config)
        spread = true * self.noise_permille // 1000
        return tuple(
            true - spread + self._hash(config, f"{stage} {number}") % (2 * spread + 1) for number in range(count)
        )

    def best(self, configs: Sequence[Config]) -> Config:
        """Return the fastest config that works, by true times. ValueError if none works."""
        usable = [config for config in configs if self.status(config) is Status.OK]
        return min(usable, key=lambda config: (self.time_ns(config), config.order_key))

    def _hash(self, config: Config, use: str) -> int:
        key = f"{self.seed} {use} ".encode() + config.order_key
        return int.from_bytes(hashlib.sha256(key).digest()[:8], "big")


class FakeEvaluator:
    """Implements :class:`silo.tuner.lanes.Evaluator` with the times of a landscape.

    It records the requested configs in ``prepared``, ``evaluated`` and ``compared``. Each evaluation takes ``delay_s``.
    """

    def __init__(self, study: Study, landscape: FakeLandscape, *, samples: int = 9, delay_s: float = 0.0) -> None:
        self._study = study
        self._landscape = landscape
        self._samples = samples
        self._delay_s = delay_s
        self.prepared: list[Config] = []
        self.evaluated: list[Config] = []
        self.compared: list[tuple[Config, ...]] = []

    def prepare(self, configs: Sequence[Config]) -> None:
        """Record the configs."""
        self.prepared.extend(configs)

    def spills(self, config: Config) -> int | None:
        """Return the landscape's spills. CompileError for a config that does not compile."""
        if self._landscape.status(config) is Status.COMPILE:
            raise CompileError("fails as planned: compile")
        return self._landscape.spills.get(config, 0)

    def evaluate(self, config: Config, reference: ReferenceConfig | None = None) -> Trial:
        """Return a trial with the landscape's status and samples; it has no reference samples."""
        del reference
        self.evaluated.append(config)
        if self._delay_s:
            time.sleep(self._delay_s)
        status = self._landscape.status(config)
        if status is not Status.OK:
            return self._study.failed(config, status, f"fails as planned: {status.value}")
        warps = dict(config.options).get("num_warps", 1)
        threads = warps * 32 if isinstance(warps, int) else 32
        samples = self._landscape.samples(config, self._samples, "search")
        return self._study.trial(config, status, samples, artifact="fake", resources=(("threads", threads),))

    def interrupt(self) -> None:
        """Do nothing, because nothing runs long."""

    def compare(self, configs: Sequence[Config]) -> Mapping[Config, Sequence[int]]:
        """Return further samples of each config."""
        self.compared.append(tuple(configs))
        return {
            config: self._landscape.samples(config, self._samples, f"final {len(self.compared)}") for config in configs
        }
