"""Trials: what happened when one config was compiled, checked and measured; studies: which trials belong together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import cast

from silo.core.config import Config
from silo.core.device import DeviceModel
from silo.core.dispatch import EXACT_LIMIT, Bucket, bucket_from_json, bucket_to_json
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Signature
from silo.core.specialization import Specialization
from silo.core.target import Target, read_target
from silo.core.values import JSON, Value, canonical_json, digest, value_from_json, value_to_json

__all__ = [
    "ReferenceSamples",
    "Stage",
    "Status",
    "Study",
    "Trial",
    "distinct_trials",
    "resources_of",
    "trials_from_record",
    "trials_to_record",
]

TRIAL_SCHEMA = "trial/1"
RECORD_SCHEMA = "trials/1"


class Status(Enum):
    """How a trial ended."""

    OK = "ok"
    COMPILE = "compile"  # the compiler refused it, or died
    TIMEOUT = "timeout"  # compiling or running passed its time limit
    RUN = "run"  # the driver or the device refused it, or it crashed
    WRONG = "wrong"  # it ran, and its result is not the expected one


class Stage(Enum):
    """When a trial was measured: alone while searching, or interleaved with the other finalists."""

    SEARCH = "search"
    FINAL = "final"


def resources_of(launch: LaunchInfo) -> tuple[tuple[str, int], ...]:
    """What one launch occupies, as trials keep it: threads per block, shared bytes; registers and spills if known."""
    known = {
        "threads": launch.threads,
        "shared_bytes": launch.shared_bytes,
        "registers": launch.registers,
        "spills": launch.spills or None,
    }
    return tuple(sorted((name, count) for name, count in known.items() if count is not None))


@dataclass(frozen=True, slots=True)
class ReferenceSamples:
    """Samples of the reference config, taken in turns with the samples of a trial, in nanoseconds for one launch.

    A trial has at least as many samples of its own. They are spread evenly: sample ``i`` of ``n`` was taken beside
    reference sample ``i * m // n`` of ``m``. The first config measured in a study is its own reference.
    """

    config: Config
    samples_ns: tuple[int, ...]

    def to_json(self) -> JSON:
        """The canonical form."""
        return {"config": self.config.to_json(), "samples_ns": list(self.samples_ns)}

    @classmethod
    def from_json(cls, data: JSON) -> ReferenceSamples:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        members = dict(_members(data))
        if set(members) != {"config", "samples_ns"}:
            raise ValueError(f"reference samples with unknown or missing members: {sorted(members)}")
        return cls(Config.from_json(members["config"]), _naturals(members["samples_ns"]))


@dataclass(frozen=True, slots=True)
class Trial:
    """One config, compiled, checked and measured once. Append-only: a trial is never changed.

    ``samples_ns`` holds every sample in the order taken (nanoseconds for one launch). ``compile_ns`` is the wall
    time of compiling, 0 where the artifact was there already. ``max_error`` is the largest difference from the
    expected result, None where nothing was compared. ``resources`` breaks ties (see :func:`resources_of`).
    ``artifact`` is the artifact key ("" where nothing was built); ``policy`` the measurement policy's identity.
    ``reference`` holds samples of the reference config that were taken in turns with these, None in trials that were
    measured alone. ``comparison`` identifies the side-by-side comparison that a trial of the final stage belongs to:
    sample ``i`` of each of its trials was taken in the same round. ``after`` names the superseding record that a trial
    was measured after, where an equal trial was superseded by it. Each is left out of the canonical form if empty.
    """

    config: Config
    status: Status
    bucket: Bucket
    device: DeviceModel
    policy: str
    samples_ns: tuple[int, ...] = ()
    compile_ns: int = 0
    message: str = ""
    artifact: str = ""
    tools: tuple[tuple[str, str], ...] = ()
    max_error: float | None = None
    resources: tuple[tuple[str, int], ...] = ()
    stage: Stage = Stage.SEARCH
    reference: ReferenceSamples | None = None
    comparison: str = ""
    after: str = ""
    _identity: bytes = field(default=b"", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if (self.status is Status.OK) != bool(self.samples_ns):
            raise ValueError(f"a trial has samples if it is ok, and only then: {self.status.value}, {self.samples_ns}")
        if self.compile_ns < 0 or min(self.samples_ns, default=0) < 0:
            raise ValueError("a trial's times are natural numbers of nanoseconds")
        if self.reference is not None and not 0 < len(self.reference.samples_ns) <= len(self.samples_ns):
            raise ValueError("a trial has a sample of its own for each of its reference, and one of the reference")

    def to_json(self) -> JSON:
        """The canonical form; ``reference``, ``comparison`` and ``after`` are left out if empty."""
        return {
            **({} if self.reference is None else {"reference": self.reference.to_json()}),
            **({"comparison": self.comparison} if self.comparison else {}),
            **({"after": self.after} if self.after else {}),
            "schema": TRIAL_SCHEMA,
            "config": self.config.to_json(),
            "status": self.status.value,
            "bucket": bucket_to_json(self.bucket),
            "device": self.device.to_json(),
            "policy": self.policy,
            "samples_ns": list(self.samples_ns),
            "compile_ns": self.compile_ns,
            "message": self.message,
            "artifact": self.artifact,
            "tools": dict(self.tools),
            "max_error": None if self.max_error is None else value_to_json(self.max_error),
            "resources": dict(self.resources),
            "stage": self.stage.value,
        }

    @classmethod
    def from_json(cls, data: JSON) -> Trial:
        """The inverse of :meth:`to_json`; ``ValueError`` on another schema, on unknown, missing or mistyped members."""
        if not isinstance(data, Mapping) or data.get("schema") != TRIAL_SCHEMA:
            raise ValueError(f"not a trial of schema {TRIAL_SCHEMA}: {str(data)[:80]}")
        if odd := (set(data) - _OPTIONAL_MEMBERS) ^ _TRIAL_MEMBERS:
            raise ValueError(f"a trial with unknown or missing members: {', '.join(sorted(odd))}")
        try:
            return cls._from_members(data)
        except (TypeError, AttributeError, KeyError, OverflowError) as problem:
            raise ValueError(f"a trial with a mistyped member: {problem}") from problem

    @classmethod
    def _from_members(cls, data: Mapping[str, JSON]) -> Trial:
        error = None if data["max_error"] is None else value_from_json(data["max_error"])
        if error is not None and not isinstance(error, float):
            raise ValueError(f"max_error of a trial is a float or null, not {error!r}")
        return cls(
            config=Config.from_json(data["config"]),
            status=Status(data["status"]),
            bucket=bucket_from_json(data["bucket"]),
            device=_device(data["device"]),
            policy=_text(data, "policy"),
            samples_ns=_naturals(data["samples_ns"]),
            compile_ns=_naturals([data["compile_ns"]])[0],
            message=_text(data, "message"),
            artifact=_text(data, "artifact"),
            tools=tuple(sorted((name, _text({name: tool}, name)) for name, tool in _members(data["tools"]))),
            max_error=error,
            resources=tuple(sorted((name, _naturals([count])[0]) for name, count in _members(data["resources"]))),
            stage=Stage(data["stage"]),
            reference=ReferenceSamples.from_json(data["reference"]) if "reference" in data else None,
            comparison=_named(data, "comparison"),
            after=_named(data, "after"),
        )

    @property
    def identity(self) -> bytes:
        """Its canonical bytes. Python's ``==`` tells no two trials apart whose configs say 1 and True."""
        if not self._identity:  # every look at a study's trials asks for it
            object.__setattr__(self, "_identity", canonical_json(self.to_json()))
        return self._identity

    @property
    def fingerprint(self) -> str:
        """What a superseding record calls it: 32 hexadecimal digits of a digest of :attr:`identity`."""
        return hashlib.sha256(self.identity).hexdigest()[:32]

    def remeasured(self, samples_ns: Sequence[int], comparison: str = "") -> Trial:
        """The further trial that an interleaved comparison of finalists adds: nothing was compiled for it."""
        return replace(
            self,
            samples_ns=tuple(samples_ns),
            compile_ns=0,
            stage=Stage.FINAL,
            reference=None,
            comparison=comparison,
            after="",
        )


_TRIAL_MEMBERS: frozenset[str] = frozenset(
    ("schema", "config", "status", "bucket", "device", "policy", "samples_ns", "compile_ns", "message", "artifact")
) | {"tools", "max_error", "resources", "stage"}
_OPTIONAL_MEMBERS = frozenset(("reference", "comparison", "after"))


def distinct_trials(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """The trials, each once."""
    return tuple({trial.identity: trial for trial in trials}.values())


def trials_to_record(trials: Iterable[Trial]) -> JSON:
    """The record that keeps ``trials`` in a store: one record, so that they are kept together or not at all."""
    return {"schema": RECORD_SCHEMA, "trials": [trial.to_json() for trial in trials]}


def trials_from_record(record: JSON) -> tuple[Trial, ...]:
    """The inverse of :func:`trials_to_record`; ``ValueError`` on anything else."""
    if not isinstance(record, dict) or record.get("schema") != RECORD_SCHEMA or set(record) != {"schema", "trials"}:
        raise ValueError(f"not a record of trials (schema {RECORD_SCHEMA})")
    trials = record["trials"]
    if isinstance(trials, list):
        return tuple(Trial.from_json(trial) for trial in trials)
    raise ValueError(f"a record of trials holds a list, not {trials!r}")


@dataclass(frozen=True)
class Study:
    """What trials have in common so that they may be compared: everything but the config.

    ``bucket`` is the class of the values of the arguments called ``bucket_names`` (both empty for a kernel without
    key), ``compiler`` the compiler's identity, ``policy`` the measurement policy's, ``driver`` the device driver's
    version ("" where there is none). The space is not part of it, so a space may grow or shrink.
    """

    kernel: str
    source: str
    signature: Signature
    specialization: Specialization
    target: Target
    compiler: str
    bucket_names: tuple[str, ...]
    bucket: Bucket
    device: DeviceModel
    policy: str
    driver: str = ""

    @cached_property
    def key(self) -> str:
        """The key its trials are stored under."""
        return digest("trial-key/1", self.to_json())

    def to_json(self) -> JSON:
        """The canonical form; no driver is left out."""
        return {
            **({"driver": self.driver} if self.driver else {}),
            "kernel": self.kernel,
            "source": self.source,
            "signature": self.signature.to_json(),
            "specialization": self.specialization.to_json(),
            "target": str(self.target),
            "compiler": self.compiler,
            "bucket_names": list(self.bucket_names),
            "bucket": bucket_to_json(self.bucket),
            "device": self.device.to_json(),
            "policy": self.policy,
        }

    @classmethod
    def from_json(cls, data: JSON) -> Study:
        """The inverse of :meth:`to_json`; ``ValueError`` on anything else."""
        if not isinstance(data, Mapping) or (set(data) | {"driver"}) ^ _STUDY_MEMBERS or data.get("driver") == "":
            raise ValueError("not a study")
        names = tuple(_text({"a key's name": name}, "a key's name") for name in _items(data["bucket_names"]))
        bucket = bucket_from_json(data["bucket"])
        if len(names) != len(bucket):
            raise ValueError(f"a study of the key {names!r} with the bucket {bucket!r}")
        return cls(
            kernel=_text(data, "kernel"),
            source=_text(data, "source"),
            signature=Signature.from_json(data["signature"]),
            specialization=Specialization.from_json(data["specialization"]),
            target=read_target(data["target"], "the target of a study"),
            compiler=_text(data, "compiler"),
            bucket_names=names,
            bucket=bucket,
            device=DeviceModel.from_json(data["device"]),
            policy=_text(data, "policy"),
            driver=_text({"driver": "", **data}, "driver"),
        )

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
    ) -> Trial:
        """A trial of this study."""
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
        )

    def failed(self, config: Config, status: Status, message: str, *, compile_ns: int = 0, artifact: str = "") -> Trial:
        """The trial of a config that could not be measured."""
        return self.trial(config, status, message=message, compile_ns=compile_ns, artifact=artifact)

    @property
    def tools(self) -> tuple[tuple[str, str], ...]:
        """The programs that its trials were made with."""
        return (("compiler", self.compiler), *((("driver", self.driver),) if self.driver else ()))

    def refuses(self, trial: Trial) -> str:
        """Why ``trial`` is none of this study's, or "" where it is one."""
        for name, ours, theirs in (
            ("bucket", str(self.bucket), str(trial.bucket)),
            ("device", str(self.device), str(trial.device)),
            ("policy", self.policy, trial.policy),
        ):
            if ours != theirs:
                return f"it was measured with {name} {theirs!r}, not {ours!r}"
        return ""

    def __str__(self) -> str:
        sizes = ", ".join(f"{name}{_size(value)}" for name, value in zip(self.bucket_names, self.bucket, strict=True))
        return f"{self.kernel}[{sizes}] on {self.target}" if sizes else f"{self.kernel} on {self.target}"


_STUDY_MEMBERS: frozenset[str] = frozenset(
    ("kernel", "source", "signature", "specialization", "target", "compiler", "bucket_names", "bucket", "device")
) | {"policy", "driver"}


_INTEGERS = frozenset([int])  # and not bool


def _size(value: Value) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value > EXACT_LIMIT and value.bit_count() == 1:
        return f"~2^{value.bit_length() - 1}"
    return f"={value}"


def _text(data: Mapping[str, JSON], name: str) -> str:
    value = data[name]
    if isinstance(value, str):
        return value
    raise ValueError(f"{name} is a string, not {value!r}")


def _named(data: Mapping[str, JSON], name: str) -> str:
    """A text that is left out if empty."""
    if name not in data:
        return ""
    if text := _text(data, name):
        return text
    raise ValueError(f"{name} of a trial is left out if empty")


def _members(data: JSON) -> list[tuple[str, JSON]]:
    if isinstance(data, dict):
        return list(data.items())
    raise ValueError(f"not a JSON object: {data!r}")


def _device(data: JSON) -> DeviceModel:
    model = DeviceModel.from_json(data)
    for name in ("vendor", "name", "arch"):
        _text({name: getattr(model, name)}, name)
    _naturals([model.units, model.memory_bytes])
    return model


def _items(data: JSON) -> list[JSON]:
    if isinstance(data, list):
        return data
    raise ValueError(f"not a JSON list: {data!r}")


def _naturals(data: JSON) -> tuple[int, ...]:
    if not isinstance(data, list) or not _INTEGERS.issuperset(map(type, data)):
        raise ValueError(f"not a list of natural numbers: {data!r}")
    numbers = tuple(cast("list[int]", data))
    if min(numbers, default=0) < 0:
        raise ValueError(f"not a list of natural numbers: {data!r}")
    return numbers
