"""Recorded spaces: every config's outcome measured once, so that tuning can be run again without a device."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from silo.core.config import Config
from silo.core.device import DeviceModel
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.target import Target
from silo.core.values import Value
from silo.errors import TuneError
from silo.tune.statistics import median
from silo.tune.trial import Status, Study, Trial

__all__ = ["RecordedOutcome", "RecordedSpace", "ReplayEvaluator"]

_FAILURES = {
    "CompilationFailedConfig": Status.COMPILE,
    "RuntimeFailedConfig": Status.RUN,
    "InvalidConfig": Status.COMPILE,
}
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class RecordedOutcome:
    """What was recorded of one config. ``compile_ns`` and ``bench_ns`` are what trying it cost, failed or not."""

    status: Status
    samples_ns: tuple[int, ...]
    compile_ns: int
    bench_ns: int


@dataclass(frozen=True)
class RecordedSpace:
    """A space with the outcome of every config, by the config's order key."""

    kernel: str
    device: str
    configs: tuple[Config, ...]
    outcomes: Mapping[bytes, RecordedOutcome]

    @classmethod
    def load(cls, path: Path) -> RecordedSpace:
        """Read a Kernel Tuner cache file (JSON, perhaps gzipped; one whose run was cut off has its brackets open).

        Raises:
            TuneError: It is no such file.
        """
        try:
            raw = path.read_bytes()
            text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
            data = _parse(text)
            names = cast("list[str]", data["tune_params_keys"])
            rows = cast("dict[str, dict[str, Any]]", data["cache"])
            recorded = [(_config(names, row), _outcome(row)) for row in rows.values()]
            return cls(
                kernel=str(data["kernel_name"]),
                device=str(data["device_name"]),
                configs=tuple(config for config, _ in recorded),
                outcomes={config.order_key: outcome for config, outcome in recorded},
            )
        except (OSError, EOFError, UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TuneError(f"{path}: not a Kernel Tuner cache file: {type(error).__name__}: {error}") from error

    @property
    def optimum_ns(self) -> int:
        """The smallest median of all configs."""
        return min(median(outcome.samples_ns) for outcome in self.outcomes.values() if outcome.samples_ns)

    def study(self, policy: str = "replay/1") -> Study:
        """A study for its trials; device facts that files do not hold are 0."""
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
    """Answers from a recorded space. Implements :class:`silo.tune.evaluator.Evaluator`.

    ``clock`` is the session's clock: it stands still but for the recorded cost of each config, so budgets in seconds
    mean what they would have meant on the device. Failures cost what they cost then. ``samples`` is how many of the
    recorded samples a config shows when it is evaluated; comparing finalists shows all of them.
    """

    def __init__(self, space: RecordedSpace, study: Study | None = None, *, samples: int = 7) -> None:
        self._space = space
        self._study = study or space.study()
        self._samples = samples
        self._now = 0
        self.evaluations = 0

    def clock(self) -> int:
        """Nanoseconds of recorded work so far."""
        return self._now

    def prepare(self, configs: Sequence[Config]) -> None:
        """Nothing to do: compiling took the time it took."""

    def evaluate(self, config: Config) -> Trial:
        """The recorded outcome; ``TuneError`` for a config that is not in the space."""
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
        """All recorded samples of each."""
        outcomes = {config: self._outcome(config) for config in configs}
        self._now += sum(outcome.bench_ns for outcome in outcomes.values())
        return {config: outcome.samples_ns for config, outcome in outcomes.items()}

    def interrupt(self) -> None:
        """Nothing runs."""

    def _outcome(self, config: Config) -> RecordedOutcome:
        try:
            return self._space.outcomes[config.order_key]
        except KeyError:
            raise TuneError(f"{config} is not in the recorded space of {self._space.kernel}") from None


def _parse(text: str) -> dict[str, Any]:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        # A run that was cut off leaves the last entry followed by a comma and two objects open.
        return json.loads(text.rstrip().rstrip(",") + "}}")


def _config(names: Sequence[str], row: Mapping[str, Any]) -> Config:
    return Config.of({name: cast("Value", row[name]) for name in names})


def _outcome(row: Mapping[str, Any]) -> RecordedOutcome:
    compile_ns = round(float(row.get("compile_time") or 0) * _NS_PER_MS)
    bench_ms = float(row.get("benchmark_time") or 0) + float(row.get("verification_time") or 0)
    status = _FAILURES[row["time"]] if isinstance(row["time"], str) else Status.OK
    samples = tuple(round(sample * _NS_PER_MS) for sample in row["times"]) if status is Status.OK else ()
    return RecordedOutcome(status, samples, compile_ns, round(bench_ms * _NS_PER_MS))
