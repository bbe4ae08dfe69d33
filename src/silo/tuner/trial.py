"""Trials: the results of compiling, checking and measuring one config; studies: the trials that belong together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from enum import Enum
from types import MappingProxyType

from silo.core.config import Config
from silo.core.device import TARGET, DeviceModel, Target
from silo.core.dispatch import BUCKET, EXACT_LIMIT, Bucket
from silo.core.json_reader import (
    FLOAT,
    NATURAL,
    NATURALS,
    TEXT,
    Persisted,
    enumerated,
    listed,
    named,
    optional,
    value_of,
)
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.values import JSON, Value, canonical_json, digest
from silo.frozen import field, frozen, remembered, replace

__all__ = [
    "Made",
    "ReferenceSamples",
    "Stage",
    "Status",
    "Study",
    "Trial",
    "distinct_trials",
    "made_of_record",
    "resources_of",
    "trials_from_record",
    "trials_to_record",
]

TRIAL_SCHEMA = "trial/1"
RECORD_SCHEMA = "trials/1"


class Status(Enum):
    """How a trial ended."""

    OK = "ok"
    COMPILE = "compile"  # the compiler rejected the code, or died
    TIMEOUT = "timeout"  # compiling or running passed its time limit
    RUN = "run"  # the driver or the device rejected the code, or the code crashed
    WRONG = "wrong"  # the code ran, but its result is not the expected one


class Stage(Enum):
    """The stage in which a trial was measured: alone in the search, or in turns with the other finalists."""

    SEARCH = "search"
    FINAL = "final"


def resources_of(launch: LaunchInfo) -> tuple[tuple[str, int], ...]:
    """Returns the resources of a launch as trials store them.

    Unknown numbers are left out, and so are spills and scratch memory of 0.
    """
    resources = {
        "threads": launch.threads,
        "shared_bytes": launch.shared_bytes,
        "registers": launch.registers,
        "spills": launch.spills or None,
        "scratch_bytes": launch.scratch_bytes or None,
    }
    return tuple(sorted((name, count) for name, count in resources.items() if count is not None))


@frozen
class ReferenceSamples(Persisted):
    """Samples of the reference config, taken in turns with the samples of a trial, in nanoseconds for one launch.

    A trial has at least as many samples of its own. They are spread evenly: sample ``i`` of ``n`` was taken beside
    reference sample ``i * m // n`` of ``m``. The first config measured in a study is its own reference.
    """

    title = "reference samples"

    config: Config = field(form=value_of(Config))
    samples_ns: tuple[int, ...] = field(form=NATURALS)


@frozen
class Trial(Persisted):
    """One config, compiled, checked and measured once. Append-only: a trial is never changed.

    ``samples_ns`` holds every sample in the order taken (nanoseconds for one launch). ``compile_ns`` is the wall time
    of compiling, 0 if the artifact existed already. ``max_error`` is the largest difference from the expected result,
    None if nothing was compared. ``resources`` breaks ties (see :func:`resources_of`). ``artifact`` is the artifact key
    ("" if nothing was built); ``policy`` is the identity of the measurement policy. ``reference`` holds samples of the
    reference config that were taken in turns with ``samples_ns``, None in trials that were measured alone.
    ``comparison`` identifies the side-by-side comparison that a trial of the final stage belongs to: sample ``i`` of
    each of its trials was taken in the same round. ``after`` names the superseding record that superseded an equal
    trial before this trial was measured. ``metrics`` holds every sample of the other metrics that were measured
    (:mod:`silo.tuner.objective`), by name. ``reference``, ``comparison``, ``after`` and ``metrics`` are left out of the
    canonical form if they are empty.
    """

    title = "a trial"
    tags = MappingProxyType({"schema": TRIAL_SCHEMA})

    config: Config = field(form=value_of(Config))
    status: Status = field(form=enumerated(Status))
    bucket: Bucket = field(form=BUCKET)
    device: DeviceModel = field(form=value_of(DeviceModel))
    policy: str = field(form=TEXT)
    samples_ns: tuple[int, ...] = field(default=(), form=NATURALS)
    compile_ns: int = field(default=0, form=NATURAL)
    message: str = field(default="", form=TEXT)
    artifact: str = field(default="", form=TEXT)
    tools: tuple[tuple[str, str], ...] = field(default=(), form=named(TEXT))
    max_error: float | None = field(default=None, form=optional(FLOAT))
    resources: tuple[tuple[str, int], ...] = field(default=(), form=named(NATURAL))
    stage: Stage = field(default=Stage.SEARCH, form=enumerated(Stage))
    reference: ReferenceSamples | None = field(default=None, form=value_of(ReferenceSamples), left_out=True)
    comparison: str = field(default="", form=TEXT, left_out=True)
    after: str = field(default="", form=TEXT, left_out=True)
    metrics: tuple[tuple[str, tuple[float, ...]], ...] = field(default=(), form=named(listed(FLOAT)), left_out=True)

    def __post_init__(self) -> None:
        if (self.status is Status.OK) != bool(self.samples_ns):
            raise ValueError(f"a trial has samples if it is ok, and only then: {self.status.value}, {self.samples_ns}")
        if self.compile_ns < 0 or min(self.samples_ns, default=0) < 0:
            raise ValueError("a trial's times are natural numbers of nanoseconds")
        if self.reference is not None and not 0 < len(self.reference.samples_ns) <= len(self.samples_ns):
            raise ValueError("a trial has a sample of its own for each of its reference, and one of the reference")

    @property
    def identity(self) -> bytes:
        """The canonical bytes of the trial.

        Python's ``==`` does not distinguish configs that hold 1 and True; this does.
        """
        return self._identity

    @remembered
    def _identity(self) -> bytes:  # remembered, because every reading of a study's trials uses it
        return canonical_json(self.to_json())

    @property
    def fingerprint(self) -> str:
        """The trial's name in a superseding record: 32 hexadecimal digits of a digest of :attr:`identity`."""
        return hashlib.sha256(self.identity).hexdigest()[:32]

    def remeasured(self, samples_ns: Sequence[int], comparison: str = "") -> Trial:
        """Returns a further trial of the same config and code, with the samples of a comparison of finalists."""
        return replace(
            self,
            samples_ns=tuple(samples_ns),
            compile_ns=0,
            stage=Stage.FINAL,
            reference=None,
            comparison=comparison,
            after="",
            metrics=(),
        )


def distinct_trials(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Returns the trials without repetitions."""
    return tuple({trial.identity: trial for trial in trials}.values())


@frozen
class Made(Persisted):
    """The origin of a record of trials: the host that stored it, the Unix time in seconds, and the version of Silo."""

    title = "the origin of trials"

    host: str = field(form=TEXT)
    time_s: int = field(form=NATURAL)
    silo: str = field(form=TEXT)


def trials_to_record(trials: Iterable[Trial], origin: Made | None = None) -> JSON:
    """Returns the record that stores ``trials``. It is one record, so that either all of them are stored or none."""
    record: dict[str, JSON] = {"schema": RECORD_SCHEMA, "trials": [trial.to_json() for trial in trials]}
    return record if origin is None else {**record, "made": origin.to_json()}


def made_of_record(record: JSON) -> Made | None:
    """Returns the origin of a record of trials; None if the record does not name it, as in early versions.

    Raises:
        ValueError: the member ``made`` is not an origin.
    """
    origin = record.get("made") if isinstance(record, dict) else None
    return None if origin is None else Made.from_json(origin)


def trials_from_record(record: JSON) -> tuple[Trial, ...]:
    """Returns the trials of a record made by :func:`trials_to_record`. Raises ValueError for anything else."""
    members = {"schema", "trials"}
    if not isinstance(record, dict) or record.get("schema") != RECORD_SCHEMA or set(record) - {"made"} != members:
        raise ValueError(f"not a record of trials (schema {RECORD_SCHEMA})")
    trials = record["trials"]
    if isinstance(trials, list):
        return tuple(Trial.from_json(trial) for trial in trials)
    raise ValueError(f"a record of trials holds a list, not {trials!r}")


@frozen
class Study(Persisted):
    """Everything that comparable trials have in common: all but the config.

    ``bucket`` is the class of the values of the arguments called ``bucket_names``; both are empty for a kernel without
    key. ``compiler`` and ``policy`` are the identities of the compiler and of the measurement policy, and ``driver``
    is the device driver's version ("" if unknown). The space is not part of a study, so a space may grow or shrink.
    """

    title = "a study"

    kernel: str = field(form=TEXT)
    source: str = field(form=TEXT)
    signature: Signature = field(form=value_of(Signature))
    specialization: Specialization = field(form=value_of(Specialization))
    target: Target = field(form=TARGET)
    compiler: str = field(form=TEXT)
    bucket_names: tuple[str, ...] = field(form=listed(TEXT))
    bucket: Bucket = field(form=BUCKET)
    device: DeviceModel = field(form=value_of(DeviceModel))
    policy: str = field(form=TEXT)
    driver: str = field(default="", form=TEXT, left_out=True)

    def __post_init__(self) -> None:
        if len(self.bucket_names) != len(self.bucket):
            raise ValueError(f"a study of the key {self.bucket_names!r} with the bucket {self.bucket!r}")

    @remembered
    def key(self) -> str:
        """The key under which the study's trials are stored."""
        return digest("trial-key/1", self.to_json())

    def trial(
        self,
        config: Config,
        status: Status,
        samples_ns: Sequence[int] = (),
        *,
        compile_ns: int = 0,
        message: str = "",
        artifact: str = "",
        max_error: float | None = None,
        resources: tuple[tuple[str, int], ...] = (),
        reference: ReferenceSamples | None = None,
        metrics: tuple[tuple[str, tuple[float, ...]], ...] = (),
    ) -> Trial:
        """Makes a trial of this study."""
        return Trial(
            config=config,
            status=status,
            bucket=self.bucket,
            device=self.device,
            policy=self.policy,
            samples_ns=tuple(samples_ns),
            compile_ns=compile_ns,
            message=message,
            artifact=artifact,
            tools=self.tools,
            max_error=max_error,
            resources=resources,
            reference=reference,
            metrics=metrics,
        )

    def failed(self, config: Config, status: Status, message: str, *, compile_ns: int = 0, artifact: str = "") -> Trial:
        """Makes the trial of a config that could not be measured."""
        return self.trial(config, status, message=message, compile_ns=compile_ns, artifact=artifact)

    @property
    def tools(self) -> tuple[tuple[str, str], ...]:
        """The programs that the study's trials are made with, and their versions."""
        return (("compiler", self.compiler), *((("driver", self.driver),) if self.driver else ()))

    def refuses(self, trial: Trial) -> str:
        """Returns the reason why ``trial`` does not belong to this study, or "" if it does."""
        for name, ours, theirs in (
            ("bucket", str(self.bucket), str(trial.bucket)),
            ("device", str(self.device), str(trial.device)),
            ("policy", self.policy, trial.policy),
        ):
            if ours != theirs:
                return f"it was measured with {name} {theirs!r}, not {ours!r}"
        return ""

    @property
    def sizes(self) -> str:
        """The values of the key, for people: ``n~2^20, causal=True``; "" for a kernel without key."""
        return ", ".join(f"{name}{_size(value)}" for name, value in zip(self.bucket_names, self.bucket, strict=True))

    def __str__(self) -> str:
        return f"{self.kernel}[{self.sizes}] on {self.target}" if self.bucket else f"{self.kernel} on {self.target}"


def _size(value: Value) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value > EXACT_LIMIT and value.bit_count() == 1:
        return f"~2^{value.bit_length() - 1}"
    return f"={value}"
