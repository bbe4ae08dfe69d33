"""JSON files of results, read a part at a time: the outermost object's members, and the rows of one of them.

These files hold measurements by the ten thousand. Parsed in one piece they take ten times their size and more: much for
an honest file, and all memory for a hostile one.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from silo.core.values import Value
from silo.errors import TuneError
from silo.plain_files import open_plain
from silo.settings import allowance, how_to_raise

__all__ = ["MEMBER_BYTES", "PLACE_BYTES", "SAMPLE_BYTES", "TRIAL_BYTES", "LimitError", "Results", "most_text"]

# Limits of a file of results. It is read a part at a time, so that only the parsed results take memory.
PART_CHARACTERS = 1 << 18  # of one row, or one member of the outermost object; parsed, up to 54 bytes for each
HEADER_CHARACTERS = 1 << 18  # of the outermost object's members together, without the rows

# Bytes of a trial, of each pair of a parameter and its value, of each place that holds one, besides the parameter's
# name in the config's key, and of each sample; together they may take three quarters of the limit of a file.
TRIAL_BYTES = 600
MEMBER_BYTES = 96
PLACE_BYTES = 24
SAMPLE_BYTES = 40

_RATIO = 32  # of a gzipped file's text to its size; files of measurements shrink 3 to 15 times
_LEAST_TEXT = 1 << 20

_CHUNK = 1 << 18  # bytes
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_OPENERS = {"{": "}", "[": "]"}
ROWS = ("cache", "results", "configs_timings")  # members that hold rows, in any of the formats


class LimitError(ValueError):
    """A file of results is larger than a limit allows. The message names the limit, and the setting that raises it."""


class Results:
    """A file of results. Each reading begins at its start; ``at`` is the character at which the last part began.

    >>> results = Results.of_text('{"cache": {"a": 1, "b": 2}, "kernel": "k"}')
    >>> results.header, list(results.rows("cache", "{"))
    ({'kernel': 'k'}, [('a', 1), ('b', 2)])
    """

    def __init__(
        self, opened: Callable[[], BinaryIO], file_bytes: int, name: str, *, fastest: int | None = None
    ) -> None:
        self._opened = opened
        self.fastest = fastest
        self._most = most_text(file_bytes)
        self.allowed = allowance(file_bytes) * 3 // 4
        self.name = name
        self.at = 0
        self.cut = False  # whether the last reading ended with objects open
        self.pairs: dict[tuple[str, type, Value], tuple[str, Value]] = {}  # of all configs, so that equal ones are one
        self._header: dict[str, Any] | None = None
        self._holders: tuple[str, ...] = ()

    @classmethod
    def of_text(cls, text: str, name: str = "") -> Results:
        """The results in a text."""
        data = text.encode()
        return cls(lambda: io.BytesIO(data), len(data), name)

    @classmethod
    def of_file(cls, path: Path, *, fastest: int | None = None) -> Results:
        """The results in a file that may be gzipped. Raises TuneError if it cannot be read.

        ``fastest``: readers keep only so many results of other tools, the fastest usable ones.
        """
        try:
            with os.fdopen(open_plain(path), "rb") as file:
                size = os.fstat(file.fileno()).st_size
        except FileNotFoundError as error:
            raise TuneError(f"{path}: no such file") from error
        except OSError as error:
            raise TuneError(f"{path}: it cannot be read: {error.strerror}") from error

        def opened() -> BinaryIO:
            file = os.fdopen(open_plain(path), "rb")
            return cast("BinaryIO", _Gzipped(file)) if path.suffix == ".gz" else file

        return cls(opened, size, path.name, fastest=fastest)

    @property
    def header(self) -> dict[str, Any]:
        """The members of the outermost object, except those that hold rows. Raises ValueError for other files."""
        if self._header is None:
            found: dict[str, Any] = {}
            holders: list[str] = []
            length = 0
            for name, text in self._members():
                if name in ROWS and text.opens():
                    text.skip()
                    holders.append(name)
                    continue
                begun = text.at
                found[name] = text.value()
                length += len(name) + text.at - begun
                if length > HEADER_CHARACTERS:
                    raise LimitError(f"its members besides rows have more than {HEADER_CHARACTERS} characters")
            self._header, self._holders = found, tuple(holders)
        return self._header

    @property
    def members(self) -> frozenset[str]:
        """The names of the outermost object's members."""
        return frozenset(self.header).union(self._holders)

    def rows(self, member: str, opener: str) -> Iterator[tuple[str, Any]]:
        """The rows of a member, each with its name in an object or its number in a list (by ``opener``).

        Raises ValueError for other files.
        """
        for name, text in self._members():
            if name == member:
                if not text.opens(opener):
                    raise ValueError(f"{member} is not {'an object' if opener == '{' else 'a list'}")
                yield from text.items()
                return
            if name in ROWS and text.opens():
                text.skip()
            else:
                text.value()
        raise ValueError(f"{member} is missing")

    def _members(self) -> Iterator[tuple[str, _Text]]:
        try:
            with self._opened() as stream:
                text = _Text(stream, self._most, self)
                if not text.opens("{"):
                    raise ValueError("not a JSON object")
                seen: set[str] = set()
                for name in text.names():
                    if name in seen:
                        raise ValueError(f"the member {name!r} is there twice")
                    seen.add(name)
                    yield name, text
                text.end()
                self.cut = text.cut
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"it cannot be read: {type(error).__name__}: {error}") from error


class _Gzipped(gzip.GzipFile):
    """The text of a gzipped file; closing it closes the file."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._file = file

    def close(self) -> None:
        """Closes both."""
        super().close()
        self._file.close()


class _Text:
    """The text of a stream; holds a window of it."""

    def __init__(self, stream: BinaryIO, most: int, owner: Results) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._window = ""
        self._place = 0  # in the window
        self._before = 0  # characters that left the window
        self._left = most
        self._ended = False
        self.cut = False  # it ended after a member of an object that was still open
        self._owner = owner

    @property
    def at(self) -> int:
        """The number of characters read."""
        return self._before + self._place

    def opens(self, openers: str = "{[") -> bool:
        """Whether an object or a list comes next."""
        return self._next() in [*openers]

    def names(self) -> Iterator[str]:
        """The names of an object's members; the caller reads each member's value before the next name."""
        self._take("{")
        if self._next() == "}":
            self._take("}")
            return
        while True:
            name = self.value()
            if not isinstance(name, str):
                raise self._wrong("a member without a name")
            self._take(":")
            yield name
            if self.cut or not self._goes_on("}"):
                return

    def items(self) -> Iterator[tuple[str, Any]]:
        """The members of an object or a list, each with its name or number. Raises ValueError for too many."""
        most = self._owner.allowed // TRIAL_BYTES
        for number, item in enumerate(self._items()):
            if number == most:
                raise LimitError(f"more than {most} rows; {how_to_raise(self._owner.allowed)}")
            yield item

    def _items(self) -> Iterator[tuple[str, Any]]:
        opener = self._next()
        if opener == "{":
            for name in self.names():
                yield name, self.value()
            return
        self._take("[")
        if self._next() == "]":
            self._take("]")
            return
        number = 0
        while True:
            yield str(number), self.value()
            number += 1
            if not self._goes_on("]"):
                return

    def skip(self) -> None:
        """Skips an object or a list."""
        for _ in self.items():
            pass

    def value(self) -> Any:  # noqa: ANN401  # whatever JSON holds
        """The next value. Raises ValueError if it is missing or too long."""
        self._next()
        self._need(PART_CHARACTERS + 1)
        self._owner.at = self.at
        try:
            value, end = _DECODER.raw_decode(self._window, self._place)
        except RecursionError:
            raise self._wrong("JSON nested too deeply") from None
        except json.JSONDecodeError as error:
            longer = "" if self._ended else f", or a part of more than {PART_CHARACTERS} characters"
            raise ValueError(f"no JSON{longer}: {error.msg}: character {self._before + error.pos}") from None
        if end - self._place > PART_CHARACTERS:
            raise LimitError(f"a part of more than {PART_CHARACTERS} characters: character {self.at}")
        if self._window.find("\\u", self._place, end) >= 0:
            # a lone surrogate would fail later, when it is printed or hashed
            json.dumps(value, ensure_ascii=False).encode()
        self._place = end
        return value

    def end(self) -> None:
        """Raises ValueError if anything follows."""
        if not self.cut and self._next():
            raise self._wrong("something follows the outermost object")

    def _goes_on(self, closer: str) -> bool:
        """Skips a comma before another item and returns True; or skips the end of an object or a list."""
        found = self._next()
        if found == ",":
            self._take(",")
            if self._next():
                return True
        if not self._next() and closer == "}":
            self.cut = True
            return False
        self._take(closer)
        return False

    def _take(self, character: str) -> None:
        if self._next() != character:
            raise self._wrong(f"{character!r} is missing")
        self._place += 1

    def _next(self) -> str:
        """The next character that is not a space; "" at the end."""
        while True:
            match = _SPACE.match(self._window, self._place)
            assert match is not None
            self._place = match.end()
            if self._place < len(self._window):
                return self._window[self._place]
            if self._ended:
                return ""
            self._need(1)

    def _need(self, characters: int) -> None:
        """Reads at least this many characters into the window, or all that are left."""
        while len(self._window) - self._place < characters and not self._ended:
            data = self._stream.read(_CHUNK)
            self._left -= len(data)
            if self._left < 0:
                raise LimitError(
                    f"it expands to far more text than a file of results of its size does: more than {_RATIO} times"
                )
            self._ended = not data
            self._window = self._window[self._place :] + self._decoder.decode(data, final=self._ended)
            self._before += self._place
            self._place = 0

    def _wrong(self, message: str) -> ValueError:
        return ValueError(f"{message}: character {self.at}")


def most_text(file_bytes: int) -> int:
    """The most bytes of text that a file of this size may expand to; one MiB is read in about a second.

    >>> most_text(1 << 20) >> 20
    33
    """
    return _LEAST_TEXT + _RATIO * file_bytes
