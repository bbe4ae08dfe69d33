"""Signatures: the ordered parameters of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Final, cast

from silo.core.json_reader import BOOL, DTYPE, TEXT, VALUE, Form, Persisted, enumerated, read_list, write_members
from silo.core.values import JSON, MAX_PARAMETERS, DType, Value, identity_of, malformed
from silo.frozen import field, frozen, remembered, replace

__all__ = ["NO_DEFAULT", "Effect", "NoDefault", "Parameter", "ParameterKind", "Signature"]


class ParameterKind(Enum):
    """The kinds of parameters. ``ANY`` stands in a source's signature until a call determines the kind."""

    ANY = "any"
    POINTER = "pointer"
    INTEGER = "integer"
    FLOAT = "float"
    BOOL = "bool"
    CONSTEXPR = "constexpr"
    DESCRIPTOR = "descriptor"


_POINTING = (ParameterKind.POINTER, ParameterKind.DESCRIPTOR)


class Effect(Enum):
    """The effect of a kernel through a pointer. Unknown counts as ``BOTH``."""

    NONE = "none"
    READ = "read"
    WRITE = "write"
    BOTH = "both"

    @property
    def reads(self) -> bool:
        """Whether memory behind the pointer may be read."""
        return self in (Effect.READ, Effect.BOTH)

    @property
    def writes(self) -> bool:
        """Whether memory behind the pointer may be written."""
        return self in (Effect.WRITE, Effect.BOTH)


class NoDefault(Enum):
    """The type of :data:`NO_DEFAULT`."""

    NO_DEFAULT = "no default"


NO_DEFAULT: Final = NoDefault.NO_DEFAULT


def _read_default(data: JSON, label: str) -> Value:
    if not isinstance(data, list) or len(data) != 1:
        raise malformed(label, data)
    return VALUE.read(data[0], label)


# The default is wrapped in a list, so that a default of None differs from no default.
_DEFAULT: Form[Value] = Form(_read_default, lambda value: [VALUE.write(value)])


@frozen
class Parameter(Persisted):
    """One parameter. ``dtype`` is the pointee's for a pointer, the value's for a scalar, None otherwise.

    ``specialize`` is False for parameters that the author excluded (Triton's ``do_not_specialize``); ``align`` is False
    for those in ``do_not_specialize_on_alignment``. A pointer may only have the default None: a number would be an
    address that the caller did not choose.
    """

    title = "a parameter"

    name: str = field(form=TEXT)
    kind: ParameterKind = field(default=ParameterKind.ANY, form=enumerated(ParameterKind))
    dtype: DType | None = field(default=None, form=DTYPE, left_out=True)
    effect: Effect = field(default=Effect.BOTH, form=enumerated(Effect), left_out=True)
    default: Value | NoDefault = field(default=NO_DEFAULT, identity=identity_of, form=_DEFAULT, left_out=True)
    specialize: bool = field(default=True, form=BOOL, left_out=True)
    align: bool = field(default=True, form=BOOL, left_out=True)

    def __post_init__(self) -> None:
        if self.kind in _POINTING and self.default is not None and not isinstance(self.default, NoDefault):
            raise ValueError(f"{self.name} is a pointer, whose default can only be None, not {self.default!r}")


def _with_effect(parameter: Parameter, effect: Effect) -> Parameter:
    return parameter if parameter.effect is effect else replace(parameter, effect=effect)


@frozen
class Signature:
    """The ordered parameters of a kernel."""

    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        names = [parameter.name for parameter in self.parameters]
        if len(set(names)) != len(names):
            raise ValueError(f"two parameters have one name: {', '.join(names)}")

    @remembered
    def names(self) -> tuple[str, ...]:
        """The parameter names, in order."""
        return tuple([parameter.name for parameter in self.parameters])

    @property
    def is_typed(self) -> bool:
        """Whether the kind of every parameter is known."""
        return all(parameter.kind is not ParameterKind.ANY for parameter in self.parameters)

    def __getitem__(self, name: str) -> Parameter:
        return self._by_name[name]

    @remembered
    def _by_name(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for parameter in self.parameters}

    def with_effects(self, effects: dict[str, Effect]) -> Signature:
        """Returns the signature with these effects, given by name."""
        return Signature(
            tuple(
                [
                    _with_effect(parameter, effects.get(parameter.name, parameter.effect))
                    for parameter in self.parameters
                ]
            )
        )

    def without_effects(self) -> Signature:
        """Returns the signature with every effect unknown: the state before a compiler read the code, used in keys."""
        return self._without_effects

    @remembered
    def _without_effects(self) -> Signature:
        return _one_of_equal(Signature(tuple([_with_effect(parameter, Effect.BOTH) for parameter in self.parameters])))

    def to_json(self) -> JSON:
        """Returns the canonical JSON form: a list of parameters."""
        return [dict(parameter) for parameter in self._json]

    @remembered
    def _json(self) -> tuple[Mapping[str, JSON], ...]:
        """The canonical JSON forms of the parameters; cached, because many keys contain them."""
        return tuple([write_members(parameter) for parameter in self.parameters])

    @classmethod
    def from_json(cls, data: JSON) -> Signature:
        """Returns the signature with this JSON form; raises ``ValueError`` for any other JSON."""
        items = read_list(data, "a signature")
        if len(items) > MAX_PARAMETERS:
            raise ValueError(f"a signature of {len(items)} parameters; at most {MAX_PARAMETERS}")
        return cls(tuple([_read_parameter(item) for item in items]))


def _read_parameter(data: JSON) -> Parameter:
    """Returns a parameter from its JSON.

    A parameter whose members are all strings is cached, because the signatures of a file repeat most parameters.
    """
    if isinstance(data, dict) and set(map(type, data.values())) == {str}:
        return _one_of_texts(tuple(cast("Mapping[str, str]", data).items()))
    # Other parameters are not cached, because 1 and True would be the same cache key, but are different JSON.
    return Parameter.from_json(data)


@lru_cache(4096)
def _one_of_texts(members: tuple[tuple[str, str], ...]) -> Parameter:
    return Parameter.from_json(cast("JSON", dict(members)))


@lru_cache(256)
def _one_of_equal(signature: Signature) -> Signature:
    """Returns one shared object for equal signatures, so that comparing keys rarely compares their parameters."""
    return signature
