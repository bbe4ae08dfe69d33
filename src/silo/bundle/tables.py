"""Tables of a manifest: values that many variants share, decoded when they are first used."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from silo.bundle.checks import Checker
from silo.bundle.format import MAX_VARIANTS
from silo.core.values import JSON, canonical_json, digest

__all__ = ["Table"]

T = TypeVar("T")


class Table(Generic[T]):
    """A table whose rows are decoded when they are first used."""

    def __init__(
        self, check: Checker, name: str, rows: JSON, decode: Callable[[JSON], T], encode: Callable[[T], JSON]
    ) -> None:
        self._check = check
        self._field = f"tables.{name}"
        self._rows = check.items(rows, self._field, MAX_VARIANTS)
        self._lengths: dict[int, int] = {}
        self._digests: dict[int, str] = {}
        self._decode = decode
        self._encode = encode
        self._values: dict[int, T] = {}

    def get(self, index: JSON, field: str) -> T:
        """The row that ``field`` refers to."""
        if type(index) is int and index in self._values:
            return self._values[index]
        number = self._check.integer(index, field, 0, len(self._rows) - 1)
        value = self._check.decoded(self._rows[number], f"{self._field}[{number}]", self._decode, self._encode)
        self._values[number] = value
        return value

    def length(self, index: JSON, field: str) -> int:
        """About how long the row's text is."""
        number = self._check.integer(index, field, 0, len(self._rows) - 1)
        found = self._lengths.get(number)
        if found is None:
            found = self._lengths[number] = len(json.dumps(self._rows[number]))
        return found

    def digest(self, index: JSON, field: str) -> str:
        """What only an equal row has; made once, as many places may refer to a long row."""
        number = self._check.integer(index, field, 0, len(self._rows) - 1)
        if number not in self._digests:
            self._digests[number] = digest("row", self._rows[number])
        return self._digests[number]

    def find(self, value: T) -> frozenset[int]:
        """The rows that hold ``value``, found without decoding any: one, or none, in a file as it should be."""
        wanted = self._encode(value)
        text = canonical_json(wanted)  # for Python, 1 and True are equal
        rows = ((number, row) for number, row in enumerate(self._rows) if row == wanted)
        return frozenset(number for number, row in rows if canonical_json(row) == text)

    def raw(self, index: JSON) -> JSON:
        """A row as it stands in the file; None where there is none."""
        return self._rows[index] if type(index) is int and 0 <= index < len(self._rows) else None

    def names(self, member: str) -> frozenset[str]:
        """The names in one member of the rows, found without decoding any; a damaged row has none."""
        members = [row.get(member) for row in self._rows if isinstance(row, dict)]
        return frozenset(name for names in members if isinstance(names, dict) for name in names)

    def all(self) -> Iterator[T]:
        """Every row."""
        return (self.get(number, self._field) for number in range(len(self._rows)))
