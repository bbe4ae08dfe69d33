"""The distance between two studies, and the fields in which they differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from silo.core.config import Config
from silo.core.dispatch import distance
from silo.core.signature import Parameter
from silo.core.values import Value
from silo.tuner.trial import Study
from silo.tuner.winner import Winner

__all__ = ["Neighbour", "StudyDifference", "differences", "nearest"]

# The weight of one difference, in sixteenths of an octave like the distance of buckets: how far the best config is
# likely to move. The weights only order studies, so only their order matters.
_POLICY = 2
_FACTS = 4
_DRIVER = 4
_COMPILER = 8
_SOURCE = 24
_MODEL = 24
_LEVEL = 16  # besides the model, if it has another architecture
_EXTENTS = 48
_CONSTANT = 48
_DTYPE = 48


@dataclass(frozen=True, slots=True)
class StudyDifference:
    """One field in which two studies differ: ``what`` describes it for people; its name; its value here and there.

    ``apart`` is its weight in sixteenths of an octave; None: results are useless across this difference.
    """

    what: str
    field: str
    ours: str
    theirs: str
    apart: int | None

    def __str__(self) -> str:
        return f"{self.field}: {self.ours} here, {self.theirs} there"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A stored study near another: their differences, their distance, and its winner.

    ``losses`` holds the loss of each config that was tried there (:func:`silo.tuner.loss_model.loss_ppm`), a million
    for a config that failed.
    """

    study: Study
    differences: tuple[StudyDifference, ...]
    apart: int
    winner: Winner | None = None
    configs: int = 0
    losses: tuple[tuple[Config, int], ...] = ()

    @property
    def is_of_this_device(self) -> bool:
        """Whether it was measured on the device model of the other study."""
        return all(one.what != "device" for one in self.differences)

    @property
    def ranking(self) -> tuple[tuple[Config, int], ...]:
        """Its configs with their median times in nanoseconds, the winner first."""
        if self.winner is None:
            return ()
        rest = tuple((standing.config, standing.time.median_ns) for standing in self.winner.runners_up)
        return ((self.winner.config, self.winner.median_ns), *rest)


def differences(ours: Study, theirs: Study) -> tuple[StudyDifference, ...]:
    """Every field in which two studies differ; empty for the same study."""
    found: list[StudyDifference] = []

    def compare(what: str, field: str, here: object, there: object, apart: int | None) -> None:
        # The text distinguishes 1 from True, as keys do.
        if str(here) != str(there):
            found.append(StudyDifference(what, field, _shown(here), _shown(there), apart))

    compare("kernel", "kernel", ours.kernel, theirs.kernel, _SOURCE)
    compare("source", "source", ours.source[:16], theirs.source[:16], _SOURCE)
    found += _signature(ours, theirs)
    same_kind = ours.target.kind == theirs.target.kind
    compare("target", "target", ours.target, theirs.target, _LEVEL if same_kind else None)
    compare("compiler", "compiler", ours.compiler, theirs.compiler, _COMPILER)
    found += _device(ours, theirs)
    compare("driver", "driver", ours.driver, theirs.driver, _DRIVER)
    compare("way of measuring", "policy", ours.policy, theirs.policy, _POLICY)
    facts, others = (tuple(f"{name} {fact.value}" for name, fact in s.specialization.facts) for s in (ours, theirs))
    compare("alignment", "assumes", ", ".join(facts), ", ".join(others), _FACTS)
    constants, other_constants = ours.specialization.constant_values, theirs.specialization.constant_values
    for name in sorted({*constants, *other_constants}):
        compare("constexpr", name, constants.get(name, "absent"), other_constants.get(name, "absent"), _CONSTANT)
    shapes, other_shapes = dict(ours.specialization.extents), dict(theirs.specialization.extents)
    for name in sorted({*shapes, *other_shapes}):
        compare("shape", name, shapes.get(name, "any"), other_shapes.get(name, "any"), _EXTENTS)
    found += _bucket(ours, theirs)
    return tuple(found)


def nearest(ours: Study, others: Iterable[Study]) -> tuple[Neighbour, ...]:
    """The studies whose results are useful for ``ours``, nearest first, without ``ours`` itself. Pure."""
    found: list[Neighbour] = []
    for study in others:
        different = differences(ours, study)
        weights = [one.apart for one in different if one.apart is not None]
        if different and len(weights) == len(different):
            found.append(Neighbour(study, different, sum(weights)))
    return tuple(sorted(found, key=lambda neighbour: (neighbour.apart, neighbour.study.key)))


def _signature(ours: Study, theirs: Study) -> list[StudyDifference]:
    if ours.signature.names != theirs.signature.names:
        mine, others = (", ".join(study.signature.names) or "none" for study in (ours, theirs))
        return [StudyDifference("parameters", "parameters", mine, others, None)]
    found: list[StudyDifference] = []
    for here, there in zip(ours.signature.parameters, theirs.signature.parameters, strict=True):
        if here != there:
            found.append(StudyDifference("dtype", here.name, _typed(here), _typed(there), _DTYPE))
    return found


def _typed(parameter: Parameter) -> str:
    text = f"{parameter.kind.value} {parameter.dtype.name}" if parameter.dtype is not None else parameter.kind.value
    marks = [word for word, kept in (("not specialized", parameter.specialize), ("any alignment", parameter.align))
             if not kept]  # fmt: skip
    return ", ".join([text, *marks])


def _device(ours: Study, theirs: Study) -> list[StudyDifference]:
    here, there = ours.device.to_json(), theirs.device.to_json()
    assert isinstance(here, dict)
    assert isinstance(there, dict)
    found: list[StudyDifference] = []
    for name, mine in here.items():
        if mine != there[name]:
            # The model counts once, however many of its fields differ.
            weight = 0 if found else _MODEL
            found.append(StudyDifference("device", f"device {name}", str(mine), str(there[name]), weight))
    return found


def _bucket(ours: Study, theirs: Study) -> list[StudyDifference]:
    if ours.bucket_names != theirs.bucket_names:
        mine, others = (", ".join(study.bucket_names) or "none" for study in (ours, theirs))
        return [StudyDifference("key", "key", mine, others, None)]
    found: list[StudyDifference] = []
    for name, here, there in zip(ours.bucket_names, ours.bucket, theirs.bucket, strict=True):
        if type(here) is not type(there) or here != there:
            found.append(StudyDifference("size", name, _value(here), _value(there), distance((here,), (there,))))
    return found


def _value(value: Value) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _shown(value: object) -> str:
    return str(value) or "nothing"
