"""Signatures: the ordered parameters of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Final

from silo.core.dtypes import DType
from silo.core.json_reader import read_dtype
from silo.core.values import JSON, MAX_PARAMETERS, Value, identity_of, malformed, value_from_json, value_to_json
from silo.frozen import field, frozen, remembered, replace

__all__ = ["NO_DEFAULT", "Effect", "NoDefault", "Parameter", "ParameterKind", "Signature"]


class ParameterKind(Enum):
    """What an argument is. ``ANY`` stands in a source's signature until a call gives the type."""

    ANY = "any"
    POINTER = "pointer"
    INTEGER = "integer"
    FLOAT = "float"
    BOOL = "bool"
    CONSTEXPR = "constexpr"
    DESCRIPTOR = "descriptor"


_POINTING = (ParameterKind.POINTER, ParameterKind.DESCRIPTOR)


class Effect(Enum):
    """What a kernel does through a pointer. Unknown counts as ``BOTH``."""

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


@frozen
class Parameter:
    """One parameter. ``dtype`` is the pointee's for a pointer, the value's for a scalar, None otherwise.

    ``specialize`` is False for parameters the author excluded (Triton's ``do_not_specialize``);
    ``align`` is False for those in ``do_not_specialize_on_alignment``. A pointer has no default but None: a number
    would be an address that the caller did not choose.
    """

    name: str
    kind: ParameterKind = ParameterKind.ANY
    dtype: DType | None = None
    effect: Effect = Effect.BOTH
    default: Value | NoDefault = field(default=NO_DEFAULT, identity=identity_of)
    specialize: bool = True
    align: bool = True

    def __post_init__(self) -> None:
        if self.kind in _POINTING and self.default is not None and not isinstance(self.default, NoDefault):
            raise ValueError(f"{self.name} is a pointer, whose default can only be None, not {self.default!r}")

    def to_json(self) -> dict[str, JSON]:
        """The canonical form; defaults of fields are left out."""
        data: dict[str, JSON] = {}  # in the order of its text: readers compare what they wrote with what they read
        if not self.align:
            data["align"] = False
        if not isinstance(self.default, NoDefault):
            data["default"] = [value_to_json(self.default)]
        if self.dtype is not None:
            data["dtype"] = self.dtype.name
        if self.effect is not Effect.BOTH:
            data["effect"] = self.effect.value
        data["kind"] = self.kind.value
        data["name"] = self.name
        if not self.specialize:
            data["specialize"] = False
        return data

    @classmethod
    def from_json(cls, data: JSON) -> Parameter:
        """The inverse of :meth:`to_json`; ``ValueError`` on unknown or missing members."""
        if not isinstance(data, dict):
            raise malformed("a parameter", data)
        unknown = set(data) - {"name", "kind", "dtype", "effect", "default", "specialize", "align"}
        name, default = data.get("name"), data.get("default")
        specialize, align = data.get("specialize", True), data.get("align", True)
        if unknown or not isinstance(name, str) or not isinstance(specialize, bool) or not isinstance(align, bool):
            raise malformed("a parameter", data)
        if default is not None and not (isinstance(default, list) and len(default) == 1):
            raise malformed("a default", default)
        return cls(
            name,
            ParameterKind(data.get("kind")),
            None if "dtype" not in data else read_dtype(data["dtype"], "a parameter's dtype"),
            Effect(data.get("effect", "both")),
            NO_DEFAULT if default is None else value_from_json(default[0]),
            specialize,
            align,
        )


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
        """Whether every parameter has its kind."""
        return all(parameter.kind is not ParameterKind.ANY for parameter in self.parameters)

    def __getitem__(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def with_effects(self, effects: dict[str, Effect]) -> Signature:
        """The same signature with the effects given by name."""
        return Signature(tuple([_with_effect(one, effects.get(one.name, one.effect)) for one in self.parameters]))

    def without_effects(self) -> Signature:
        """The same signature with every effect unknown: as it is before a compiler has looked, and as keys hold it."""
        return self._without_effects

    @remembered
    def _without_effects(self) -> Signature:
        return _one_of_equal(Signature(tuple([_with_effect(one, Effect.BOTH) for one in self.parameters])))

    def to_json(self) -> JSON:
        """The canonical form: a list of parameters."""
        return [dict(parameter) for parameter in self._json]

    @remembered
    def _json(self) -> tuple[Mapping[str, JSON], ...]:
        """The canonical forms of the parameters, which many keys are made of."""
        return tuple([parameter.to_json() for parameter in self.parameters])

    @classmethod
    def from_json(cls, data: JSON) -> Signature:
        """The inverse of :meth:`to_json`."""
        if not isinstance(data, list):
            raise malformed("a signature", data)
        if len(data) > MAX_PARAMETERS:
            raise ValueError(f"a signature of {len(data)} parameters; at most {MAX_PARAMETERS}")
        return cls(tuple(Parameter.from_json(item) for item in data))


@lru_cache(256)
def _one_of_equal(signature: Signature) -> Signature:
    """The same object for equal signatures: the keys that they are part of compare without a look at parameters."""
    return signature
