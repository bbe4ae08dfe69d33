"""Typed access to parsed JSON, whose errors are ``BundleFormatError`` with field and offset."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeVar

from silo.bundle.format import require_minor, version_of_launch
from silo.core.launch_info import LaunchInfo
from silo.core.values import JSON
from silo.errors import BundleFormatError, SiloError
from silo.frozen import frozen

__all__ = ["HIDDEN", "Checker", "is_shown", "read_launch"]

T = TypeVar("T")

# What the `from_json` of core values raises for JSON that they never wrote.
_DECODE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, SiloError)


# What a name may not have, whichever version of Unicode Python knows, as ranges: controls, formats, separators but the
# space, surrogates, private and non-characters. Nothing in it is printable for any Python; the C reader has the same.
HIDDEN: tuple[tuple[int, int], ...] = (
    (0x0000, 0x001F),
    (0x007F, 0x00A0),
    (0x00AD, 0x00AD),
    (0x0600, 0x0605),
    (0x061C, 0x061C),
    (0x06DD, 0x06DD),
    (0x070F, 0x070F),
    (0x0890, 0x0891),
    (0x08E2, 0x08E2),
    (0x1680, 0x1680),
    (0x180E, 0x180E),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x206F),
    (0x3000, 0x3000),
    (0xD800, 0xF8FF),
    (0xFDD0, 0xFDEF),
    (0xFEFF, 0xFEFF),
    (0xFFF0, 0xFFFB),
    (0xFFFE, 0xFFFF),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x13430, 0x1343F),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    *((plane << 16 | 0xFFFE, plane << 16 | 0xFFFF) for plane in range(1, 13)),
    (0xDFFFE, 0xE00FF),
    (0xE01F0, 0x10FFFF),
)


def is_shown(text: str) -> bool:
    r"""Whether no character of a name is ``HIDDEN``.

    >>> is_shown("add \u00fc"), is_shown("add\u202e")
    (True, False)
    """
    # Of the rest only those are not printable that a version of Unicode does not know yet.
    return text.isprintable() or not any(low <= ord(one) <= high for one in text for low, high in HIDDEN)


@frozen
class Checker:
    """Checks of one JSON document that lies at ``offset`` in ``file`` (a name for messages)."""

    file: str
    offset: int

    def error(self, field: str, message: str) -> BundleFormatError:
        """The error to raise for ``field``."""
        return BundleFormatError(f"{self.file}: {message}", field=field, offset=self.offset)

    def members(
        self, data: JSON, field: str, names: frozenset[str], optional: frozenset[str] = frozenset()
    ) -> Mapping[str, JSON]:
        """``data`` as an object with exactly these members, and perhaps the ``optional`` ones."""
        if not isinstance(data, dict):
            raise self.error(field, f"a {type(data).__name__} where an object is needed")
        if frozenset(data) - optional != names:
            unknown, missing = sorted(data.keys() - names - optional), sorted(names - data.keys())
            parts = [f"unknown members {unknown}"] if unknown else []
            parts += [f"members {missing} are missing"] if missing else []
            raise self.error(field, ", ".join(parts))
        return data

    def items(self, data: JSON, field: str, limit: int) -> list[JSON]:
        """``data`` as a list of at most ``limit`` items."""
        if not isinstance(data, list):
            raise self.error(field, f"a {type(data).__name__} where a list is needed")
        if len(data) > limit:
            raise self.error(field, f"{len(data)} items where at most {limit} are allowed")
        return data

    def integer(self, data: JSON, field: str, low: int, high: int) -> int:
        """``data`` as an integer from ``low`` to ``high``."""
        if not isinstance(data, int) or isinstance(data, bool):
            raise self.error(field, f"a {type(data).__name__} where an integer is needed")
        if not low <= data <= high:
            raise self.error(field, f"the number is out of range ({low} to {high})")
        return data

    def text(self, data: JSON, field: str, limit: int = 1 << 16) -> str:
        """``data`` as a string of at most ``limit`` characters."""
        if not isinstance(data, str):
            raise self.error(field, f"a {type(data).__name__} where a string is needed")
        if len(data) > limit:
            raise self.error(field, f"{len(data)} characters where at most {limit} are allowed")
        return data

    def name(self, data: JSON, field: str) -> str:
        """``data`` as a name: printable, not empty, at most 1024 characters."""
        text = self.text(data, field, 1024)
        if not text or not is_shown(text):
            raise self.error(field, f"not a name: {text!r}")
        return text

    def names(self, data: JSON, field: str) -> tuple[str, ...]:
        """``data`` as a list of different names."""
        found = tuple(self.name(item, f"{field}[{i}]") for i, item in enumerate(self.items(data, field, 1 << 12)))
        if len(set(found)) != len(found):
            raise self.error(field, "a name occurs twice")
        return found

    def texts(self, data: JSON, field: str) -> tuple[tuple[str, str], ...]:
        """``data`` as an object of strings, in the order of its names."""
        if not isinstance(data, dict):
            raise self.error(field, f"a {type(data).__name__} where an object is needed")
        if len(data) > 1 << 10:
            raise self.error(field, "too many members")
        return tuple((self.name(key, field), self.text(data[key], f"{field}.{key}")) for key in sorted(data))

    def decoded(self, data: JSON, field: str, decode: Callable[[JSON], T], encode: Callable[[T], JSON]) -> T:
        """A core value from its JSON; anything but the one form that ``encode`` writes is refused."""
        try:
            value = decode(data)
            written = encode(value)
            # For Python True equals 1, so that either could stand before the other where order counts.
            same = written == data and (repr(written) == repr(data) or _text(written) == _text(data))
        except _DECODE_ERRORS as error:
            raise self.error(field, str(error)[:500] or type(error).__name__) from None
        if not same:
            raise self.error(field, "not in its canonical form")
        return value


def _text(data: JSON) -> str:
    """The same for the same data only, where one of two has no floats."""
    return json.dumps(data, sort_keys=True)


def read_launch(data: JSON, minor: int) -> LaunchInfo:
    """Launch info of a file of this minor version, whose numbers a driver can be given; ``ValueError`` on another."""
    launch = LaunchInfo.from_json(data)
    for slot in launch.layout:
        if not isinstance(slot.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # the JSON may hold anything
            raise TypeError(f"a layout slot's name is a string, not {slot.name!r}")
    for size in launch.cluster:
        if type(size) is not int or not 1 <= size <= 1 << 16:
            raise ValueError(f"not a cluster: {launch.cluster!r}")
    for name, value in launch.counts():
        if not 0 <= value < 1 << 31:
            raise ValueError(f"{name} is out of range: {value}")
    for name in ("scratch_bytes", "profile_bytes"):
        if getattr(launch, name) >= 1 << 48:
            raise ValueError(f"{name} is out of range: {getattr(launch, name)}")
    for name in ("scratch_align", "profile_align"):
        value = getattr(launch, name)
        if not 1 <= value <= 1 << 16 or value & (value - 1):
            raise ValueError(f"{name} is not a power of two up to 65536: {value}")
    if not launch.entry or not is_shown(launch.entry):
        raise ValueError(f"not an entry symbol: {launch.entry!r}")
    require_minor(minor, version_of_launch(launch), "such parameters")
    return launch
