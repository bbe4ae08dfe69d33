"""Decodes the JSON documents of a bundle. Raises ``BundleFormatError``, with field and offset, for malformed JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from silo.core.values import JSON
from silo.errors import BundleFormatError, SiloError
from silo.frozen import frozen

__all__ = ["Checker"]

T = TypeVar("T")

# The exceptions that ``from_json`` of a value raises for JSON of a form that ``to_json`` never writes.
_DECODE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, SiloError)


@frozen
class Checker:
    """Checks one JSON document, which is at ``offset`` in ``file`` (a name for messages)."""

    file: str
    offset: int

    def error(self, field: str, message: str) -> BundleFormatError:
        """Returns the error to raise for ``field``."""
        return BundleFormatError(f"{self.file}: {message}", field=field, offset=self.offset)

    def members(self, data: JSON, field: str, names: frozenset[str]) -> Mapping[str, JSON]:
        """Returns ``data``, an object with exactly these members. Raises BundleFormatError for anything else."""
        if not isinstance(data, dict):
            raise self.error(field, f"a {type(data).__name__} where an object is needed")
        if frozenset(data) != names:
            unknown, missing = sorted(data.keys() - names), sorted(names - data.keys())
            parts = [f"unknown members {unknown}"] if unknown else []
            parts += [f"members {missing} are missing"] if missing else []
            raise self.error(field, ", ".join(parts))
        return data

    def decoded(self, data: JSON, field: str, decode: Callable[[JSON], T], encode: Callable[[T], JSON]) -> T:
        """Returns a value decoded from its JSON.

        Raises BundleFormatError for any JSON that ``encode`` would not write.
        """
        try:
            value = decode(data)
            written = encode(value)
            # In Python True equals 1, so the texts are compared too.
            same = written == data and (repr(written) == repr(data) or _text(written) == _text(data))
        except _DECODE_ERRORS as error:
            raise self.error(field, str(error)[:500] or type(error).__name__) from None
        if not same:
            raise self.error(field, "not in its canonical form")
        return value


def _text(data: JSON) -> str:
    """Returns the JSON text of a value, for a comparison in which 1 and True differ.

    Different values have different texts, unless both values contain floats.
    """
    return json.dumps(data, sort_keys=True)
