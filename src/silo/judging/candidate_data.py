"""The data that a candidate's process sends: variants as text, with their launches. Reading it executes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from silo.compile.wire import read_message
from silo.core.launch_info import LayoutSlot
from silo.core.signature import ParameterKind
from silo.core.specialization import Fact
from silo.core.variant import CompileJob, Variant
from silo.errors import CompileError, SiloError
from silo.frozen import frozen

__all__ = [
    "ArrayShape",
    "CandidateData",
    "CandidateError",
    "CaseShape",
    "LaunchData",
    "VariantData",
    "read_messages",
    "validate",
]

_MOST_TEXT = 4 << 20
_MOST_VARIANTS = 256


class CandidateError(SiloError):
    """A candidate, or the data that its process sent, breaks a rule of the judge."""


@frozen
class ArrayShape:
    """An array argument as a candidate's process receives it: everything except the values of its elements.

    ``offset`` is the address of its first element modulo 64, in bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int = 0


def _shape(members: Any) -> ArrayShape:  # noqa: ANN401  # JSON that the judge itself made
    return ArrayShape(members["dtype"], tuple(members["shape"]), members["offset"])


@frozen
class CaseShape:
    """A case as a candidate's process receives it: the arguments by name, in order.

    A number is sent itself, an array only as its :class:`ArrayShape`.
    """

    arguments: tuple[tuple[str, ArrayShape | int | float | bool], ...]

    def to_json(self) -> list[Any]:
        """Returns a pair for each argument: its name, and its number or the array's members by name."""
        return [
            [name, {"dtype": argument.dtype, "shape": list(argument.shape), "offset": argument.offset}]
            if isinstance(argument, ArrayShape)
            else [name, argument]
            for name, argument in self.arguments
        ]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> CaseShape:
        """Parses the result of :meth:`to_json`."""
        return cls(tuple((name, _shape(item) if isinstance(item, dict) else item) for name, item in data))


@frozen
class VariantData:
    """One variant of a candidate's kernel: the text of its checked code, the parameter layout, and the compile jobs."""

    variant: Variant
    text: str
    layout: tuple[LayoutSlot, ...]
    jobs: tuple[CompileJob, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the members as JSON."""
        return {
            "variant": self.variant.to_json(),
            "text": self.text,
            "layout": [slot.to_json() for slot in self.layout],
            "jobs": [job.to_json() for job in self.jobs],
        }

    @classmethod
    def from_json(cls, data: Any) -> VariantData:  # noqa: ANN401  # a candidate's data
        """Parses the result of :meth:`to_json`. Raises ValueError, TypeError, KeyError or SiloError."""
        text = data["text"]
        if not isinstance(text, str) or len(text) > _MOST_TEXT:
            raise CandidateError(f"the text of a variant is longer than {_MOST_TEXT >> 20} MiB, or is no text")
        return cls(
            Variant.from_json(data["variant"]),
            text,
            tuple(LayoutSlot.from_json(slot) for slot in data["layout"]),
            tuple(CompileJob.from_json(job) for job in data["jobs"]),
        )


@frozen
class LaunchData:
    """One launch: the indices of its case, its config and its variant, and the grid."""

    case: int
    config: int
    variant: int
    grid: tuple[int, int, int]


@frozen
class CandidateData:
    """All data of a candidate: its kernel's name and kind, its variants, and the launches of the cases."""

    kernel: str
    kind: str
    variants: tuple[VariantData, ...]
    launches: tuple[LaunchData, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the members as JSON."""
        return {
            "kernel": self.kernel,
            "kind": self.kind,
            "variants": [variant.to_json() for variant in self.variants],
            "launches": [[launch.case, launch.config, launch.variant, list(launch.grid)] for launch in self.launches],
        }

    @classmethod
    def from_json(cls, data: Any) -> CandidateData:  # noqa: ANN401  # a candidate's data
        """Parses the data that a candidate's process sent.

        Raises:
            CandidateError: the data has another form.
        """
        try:
            kernel, kind = _name(data["kernel"]), _name(data["kind"])
            variants = tuple(VariantData.from_json(item) for item in data["variants"][:_MOST_VARIANTS])
            launches = tuple(_launch(*item) for item in data["launches"])
        except CandidateError:
            raise
        except (SiloError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            reason = f"its process sent data that does not describe a kernel: {type(error).__name__}: {error}"
            raise CandidateError(reason) from None
        if any(launch.variant >= len(variants) for launch in launches):
            raise CandidateError("its process sent a launch of a variant that it did not send")
        return cls(kernel, kind, variants, launches)


def _launch(case: object, config: object, variant: object, grid: object) -> LaunchData:
    return LaunchData(_natural(case), _natural(config), _natural(variant), _grid(grid))


def _name(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 200:
        raise CandidateError("its process sent a kernel without a name")
    return value


def _natural(value: object) -> int:
    if type(value) is not int or value < 0:
        raise CandidateError(f"its process sent {value!r} as a natural number")
    return value


def _grid(value: Any) -> tuple[int, int, int]:  # noqa: ANN401  # a candidate's data
    extents = cast("list[object]", value) if isinstance(value, list) else []
    if not 1 <= len(extents) <= 3:
        raise CandidateError(f"its process sent {value!r} as a grid")
    x, y, z = (*map(_natural, extents), 1, 1)[:3]
    return x, y, z


def validate(data: CandidateData, cases: Sequence[CaseShape], configs: int, target: object) -> int:
    """Checks that each case and config has one launch, and that the launch's variant fits the case's arguments.

    Returns the number of configs.

    Raises:
        CandidateError: a launch is missing, the candidate has more than ``configs`` configs, or a variant is for
            another target or other arguments.
    """
    numbers = sorted({launch.config for launch in data.launches})
    if not numbers or numbers != list(range(len(numbers))):
        raise CandidateError("its process sent no launch")
    if len(numbers) > configs:
        raise CandidateError(f"it has {len(numbers)} configs; a task takes at most {configs}: tune it first")
    expected_pairs = [(case, config) for case in range(len(cases)) for config in numbers]
    if sorted((launch.case, launch.config) for launch in data.launches) != expected_pairs:
        raise CandidateError(f"its process did not send one launch for each of {len(cases)} cases")
    for launch in data.launches:
        variant_data = data.variants[launch.variant]
        if variant_data.variant.target != target:
            raise CandidateError(f"its process sent code for {variant_data.variant.target}, not for {target}")
        _fits(variant_data.variant, cases[launch.case])
    return len(numbers)


def _fits(variant: Variant, case: CaseShape) -> None:
    """Raises CandidateError unless a case's arguments have the types and constants that a variant was compiled for.

    The arguments must also fulfill what the variant's code assumes, such as alignment.
    """
    config = variant.config.as_dict()
    runtime = [parameter for parameter in variant.signature.parameters if parameter.kind is not ParameterKind.CONSTEXPR]
    values_by_name = dict(
        zip([call_parameter.name for call_parameter in runtime], [value for _, value in case.arguments], strict=False)
    )
    if len(runtime) != len(case.arguments):
        parameter_names = ", ".join(call_parameter.name for call_parameter in runtime)
        raise CandidateError(
            f"its kernel takes {len(runtime)} arguments ({parameter_names}); a case has {len(case.arguments)}"
        )
    for call_parameter in runtime:
        value = values_by_name[call_parameter.name]
        if isinstance(value, ArrayShape) != (call_parameter.kind is ParameterKind.POINTER):
            raise CandidateError(
                f"its parameter {call_parameter.name} is a {call_parameter.kind.value}; the argument is not"
            )
        if isinstance(value, ArrayShape) and (call_parameter.dtype is None or call_parameter.dtype.name != value.dtype):
            raise CandidateError(
                f"its parameter {call_parameter.name} points to {call_parameter.dtype}; the array is of {value.dtype}"
            )
    for name, fact in variant.specialization.facts:
        if not _holds(fact, values_by_name.get(name)):
            raise CandidateError(f"its code assumes of {name}: {fact.value}, which does not hold in a case")
    for name, constant in variant.specialization.constants:
        if name in values_by_name and constant != values_by_name[name]:
            raise CandidateError(f"its code has {name}={constant}, and a case has {values_by_name[name]}")
        if name in config and constant != config[name]:
            raise CandidateError(f"its code has {name}={constant}, and its config {config[name]}")


def _holds(fact: Fact, value: object) -> bool:
    match fact:
        case Fact.ALIGNED_16:
            return isinstance(value, ArrayShape) and value.offset % 16 == 0
        case Fact.DIVISIBLE_16:
            return isinstance(value, int) and value % 16 == 0
        case Fact.EQUAL_1:
            return value == 1
        case Fact.POINTER_RANGE_32:
            return isinstance(value, ArrayShape)
        case _:
            return False


def read_messages(reply: bytes) -> list[tuple[dict[str, Any], tuple[bytes, ...]]]:
    """Returns the messages that a process sent; reading stops at the first bytes that are not a message."""
    messages: list[tuple[dict[str, Any], tuple[bytes, ...]]] = []
    place = 0

    def take(count: int) -> bytes:
        nonlocal place
        part = reply[place : place + count]
        if len(part) < count:
            raise EOFError
        place += count
        return part

    while place < len(reply):
        try:
            header, blobs = read_message(take)
        except (CompileError, EOFError, RecursionError, json.JSONDecodeError):
            break
        messages.append((header, blobs))
    return messages
