"""Readers of parsed JSON: each gives what was asked for, or raises ``ValueError`` through :func:`malformed`.

Data may come from anywhere, so no reader lets another exception out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from silo.core.dtypes import DType, dtype
from silo.core.values import JSON, MAX_AXES, MAX_NAMES, Value, malformed, value_from_json

__all__ = [
    "read_bool",
    "read_dtype",
    "read_integer",
    "read_integers",
    "read_list",
    "read_mapping",
    "read_natural",
    "read_object",
    "read_pairs",
    "read_text",
    "read_values",
]


def read_mapping(data: JSON, what: str) -> Mapping[str, JSON]:
    """An object with any members."""
    if not isinstance(data, dict):
        raise malformed(what, data)
    return data


def read_object(data: JSON, names: Sequence[str], what: str) -> Mapping[str, JSON]:
    """An object with exactly these members."""
    if not isinstance(data, dict) or set(data) != set(names):
        raise malformed(what, data)
    return data


def read_list(data: JSON, what: str, most: int | None = None) -> Sequence[JSON]:
    """A list, of at most so many items."""
    if not isinstance(data, list):
        raise malformed(what, data)
    if most is not None and len(data) > most:
        raise ValueError(f"{what} of {len(data)} items; at most {most}")
    return data


def read_pairs(data: JSON, what: str) -> Sequence[tuple[str, JSON]]:
    """A list of at most ``MAX_NAMES`` pairs ``[name, anything]``."""
    pairs: list[tuple[str, JSON]] = []
    for item in read_list(data, what, MAX_NAMES):
        pair = read_list(item, what)
        if len(pair) != 2:
            raise malformed(what, item)
        pairs.append((read_text(pair[0], what), pair[1]))
    return pairs


def read_text(data: JSON, what: str) -> str:
    """A string."""
    if not isinstance(data, str):
        raise malformed(what, data)
    return data


def read_bool(data: JSON, what: str) -> bool:
    """True or false."""
    if not isinstance(data, bool):
        raise malformed(what, data)
    return data


def read_integer(data: JSON, what: str) -> int:
    """An integer, which a bool is not."""
    if not isinstance(data, int) or isinstance(data, bool):
        raise malformed(what, data)
    return data


def read_natural(data: JSON, what: str) -> int:
    """An integer that is not negative."""
    value = read_integer(data, what)
    if value < 0:
        raise malformed(what, data)
    return value


def read_integers(data: JSON, what: str) -> tuple[int, ...]:
    """A list of at most ``MAX_AXES`` integers: of shapes and their like, whose product somebody takes."""
    return tuple(read_integer(item, what) for item in read_list(data, what, MAX_AXES))


def read_values(data: JSON, what: str) -> tuple[tuple[str, Value], ...]:
    """An object of at most ``MAX_NAMES`` members, which are values."""
    members = read_mapping(data, what)
    if len(members) > MAX_NAMES:
        raise ValueError(f"{what}: {len(members)} members; at most {MAX_NAMES}")
    return tuple((name, value_from_json(item)) for name, item in members.items())


def read_dtype(data: JSON, what: str) -> DType:
    """The name of a dtype."""
    try:
        return dtype(read_text(data, what))
    except KeyError as error:
        raise ValueError(str(error.args[0])) from None
