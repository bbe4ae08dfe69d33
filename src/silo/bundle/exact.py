"""A variant found by the text of its rows, as a writer would write them: nothing that is looked at is decoded."""

from __future__ import annotations

from collections.abc import Mapping

from silo.core.values import JSON, Value, canonical_json, value_to_json
from silo.core.variant import Variant

__all__ = ["WrittenVariant", "names_in"]


class WrittenVariant:
    """What decides which calls a variant serves, and with what code, as rows of tables say it.

    A writer may put a constexpr into the config or into the specialization: here both are one.
    """

    def __init__(self, variant: Variant) -> None:
        specialization = variant.specialization
        self._types = [
            (one.name, one.kind.value, None if one.dtype is None else one.dtype.name)
            for one in variant.signature.parameters
        ]
        self._plain = not specialization.made_for_some
        self._facts: JSON = [[name, fact.value] for name, fact in specialization.facts]
        self._constants = _written({**dict(variant.config.values), **specialization.constant_values})
        self._options = _written(dict(variant.config.options))

    def has_types(self, signature: JSON) -> bool:
        """Whether a row of the table of signatures has these parameters. Effects and defaults do not count."""
        return isinstance(signature, list) and self._types == [
            (one.get("name"), one.get("kind"), one.get("dtype")) if isinstance(one, dict) else None for one in signature
        ]

    def is_in(self, specialization: JSON, config: JSON) -> bool:
        """Whether two rows say the same. False for damaged rows, and for code that was made for certain extents."""
        match specialization, config:
            case {"facts": facts, "constants": list(pairs)}, {"values": dict(values), "options": dict(options)}:
                pass
            case _:
                return False
        if not self._plain or len(specialization) != 2 or facts != self._facts:
            return False
        constants: dict[str, bytes] = {name: canonical_json(value) for name, value in values.items()}
        for pair in pairs:
            match pair:
                case [str(name), value]:
                    constants[name] = canonical_json(value)
                case _:
                    return False
        return (
            constants == self._constants
            and {name: canonical_json(value) for name, value in options.items()} == self._options
        )


def _written(values: Mapping[str, Value]) -> dict[str, bytes]:
    """By canonical text: for Python, 1 and True are equal."""
    return {name: canonical_json(value_to_json(value)) for name, value in values.items()}


def names_in(signature: JSON) -> list[JSON] | None:
    """The names in a row of the table of signatures; None where it is damaged."""
    if not isinstance(signature, list):
        return None
    return [one.get("name") if isinstance(one, dict) else None for one in signature]
