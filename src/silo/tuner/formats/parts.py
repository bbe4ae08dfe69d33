"""Reads JSON files of results a part at a time: a member of the outermost object, or a row of one of its members.

These files hold tens of thousands of measurements. Parsing one in a single piece takes ten times its size and more:
much memory for an honest file, and all memory for a hostile one.
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

# The limits of a file of results. It is parsed a part at a time, so memory holds only the results and one part.
# A part is one row, or one member of the outermost object; parsing takes up to 54 bytes for each of its characters.
PART_CHARACTERS = 1 << 18
HEADER_CHARACTERS = 1 << 18  # the most characters of all members of the outermost object together, without the rows

# The bytes of memory that parsed results are assumed to take: for each trial; for each distinct pair of a parameter and
# its value; for each use of such a pair in a config, besides the characters of the parameter's name; for each sample.
# The sum may be at most three quarters of the memory that is allowed for the file.
TRIAL_BYTES = 600
MEMBER_BYTES = 96
PLACE_BYTES = 24
SAMPLE_BYTES = 40

_RATIO = 32  # the largest factor by which a gzipped file may expand; files of measurements expand 3 to 15 times
_LEAST_TEXT = 1 << 20

_CHUNK = 1 << 18  # bytes read at a time
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_OPENERS = {"{": "}", "[": "]"}
ROWS = ("cache", "results", "configs_timings")  # the members that hold rows, in any of the formats


class LimitError(ValueError):
    """A file of results is larger than a limit. The message names the limit, and the setting that raises it."""


class Results:
    """A file of results. Each method reads the file again from its start; ``at`` is where the last parsed part began.

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
        self.cut = False  # whether the file ended while an object was still open, in the last reading
        # each pair of a parameter and its value, shared by all configs to save memory
        self.pairs: dict[tuple[str, type, Value], tuple[str, Value]] = {}
        self._header: dict[str, Any] | None = None
        self._holders: tuple[str, ...] = ()

    @classmethod
    def of_text(cls, text: str, name: str = "") -> Results:
        """Returns the results in a string."""
        data = text.encode()
        return cls(lambda: io.BytesIO(data), len(data), name)

    @classmethod
    def of_file(cls, path: Path, *, fastest: int | None = None) -> Results:
        """Returns the results in a file that may be gzipped. Raises TuneError if the file cannot be read.

        With ``fastest``, readers keep only this many of the results of another tool: the fastest usable ones.
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
        """The members of the outermost object, except those that hold rows.

        Raises ValueError if the file has another form.
        """
        if self._header is None:
            members: dict[str, Any] = {}
            holders: list[str] = []
            length = 0
            for name, text in self._members():
                if name in ROWS and text.opens():
                    text.skip()
                    holders.append(name)
                    continue
                begun = text.at
                members[name] = text.value()
                length += len(name) + text.at - begun
                if length > HEADER_CHARACTERS:
                    raise LimitError(f"its members besides rows have more than {HEADER_CHARACTERS} characters")
            self._header, self._holders = members, tuple(holders)
        return self._header

    @property
    def members(self) -> frozenset[str]:
        """The names of the outermost object's members."""
        return frozenset(self.header).union(self._holders)

    def rows(self, member: str, opener: str) -> Iterator[tuple[str, Any]]:
        """Yields the rows of a member, each with its name or, in a list, its index as text.

        ``opener`` is the bracket that the member must begin with, ``{`` for an object or ``[`` for a list. Raises
        ValueError for another form.
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
                seen_names: set[str] = set()
                for name in text.names():
                    if name in seen_names:
                        raise ValueError(f"the member {name!r} is there twice")
                    seen_names.add(name)
                    yield name, text
                text.end()
                self.cut = text.cut
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"it cannot be read: {type(error).__name__}: {error}") from error


class _Gzipped(gzip.GzipFile):
    """The decompressed bytes of a gzipped file. Closing this object closes the file too."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._file = file

    def close(self) -> None:
        """Closes the decompressor and the file."""
        super().close()
        self._file.close()


class _Text:
    """A reader of the JSON text of a stream, which keeps only a window of the text in memory."""

    def __init__(self, stream: BinaryIO, most: int, owner: Results) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._window = ""
        self._next_index = 0  # the index in the window of the next character to read
        self._dropped = 0  # the number of characters that were dropped from the window
        self._bytes_left = most
        self._ended = False
        self.cut = False  # whether the text ended after a member of an object, without the object's bracket
        self._owner = owner

    @property
    def at(self) -> int:
        """The number of characters read."""
        return self._dropped + self._next_index

    def opens(self, openers: str = "{[") -> bool:
        """Returns whether the next character is one of ``openers``: whether an object or a list comes next."""
        return self._next() in [*openers]

    def names(self) -> Iterator[str]:
        """Yields the names of an object's members. The caller must read each value before it takes the next name."""
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
        """Yields the members of an object with their names, or the elements of a list with their index as text.

        Raises ValueError if they are too many.
        """
        trial_limit = self._owner.allowed // TRIAL_BYTES
        for number, item in enumerate(self._items()):
            if number == trial_limit:
                raise LimitError(f"more than {trial_limit} rows; {how_to_raise(self._owner.allowed)}")
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
        """Skips the object or the list that comes next."""
        for _ in self.items():
            pass

    def value(self) -> Any:  # noqa: ANN401  # whatever JSON holds
        """Returns the next value. Raises ValueError if it is missing or too long."""
        self._next()
        self._need(PART_CHARACTERS + 1)
        self._owner.at = self.at
        try:
            value, end = _DECODER.raw_decode(self._window, self._next_index)
        except RecursionError:
            raise self._wrong("JSON nested too deeply") from None
        except json.JSONDecodeError as error:
            longer = "" if self._ended else f", or a part of more than {PART_CHARACTERS} characters"
            raise ValueError(f"no JSON{longer}: {error.msg}: character {self._dropped + error.pos}") from None
        if end - self._next_index > PART_CHARACTERS:
            raise LimitError(f"a part of more than {PART_CHARACTERS} characters: character {self.at}")
        if self._window.find("\\u", self._next_index, end) >= 0:
            # raises for a lone surrogate, which would otherwise fail later, when it is printed or hashed
            json.dumps(value, ensure_ascii=False).encode()
        self._next_index = end
        return value

    def end(self) -> None:
        """Raises ValueError if more text follows."""
        if not self.cut and self._next():
            raise self._wrong("something follows the outermost object")

    def _goes_on(self, closer: str) -> bool:
        """Skips a comma and returns True if another item follows; otherwise skips ``closer`` and returns False.

        A text that ends inside an object sets ``cut`` and returns False.
        """
        character = self._next()
        if character == ",":
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
        self._next_index += 1

    def _next(self) -> str:
        """Returns the next character that is not white space, without reading past it; "" at the end."""
        while True:
            match = _SPACE.match(self._window, self._next_index)
            assert match is not None
            self._next_index = match.end()
            if self._next_index < len(self._window):
                return self._window[self._next_index]
            if self._ended:
                return ""
            self._need(1)

    def _need(self, characters: int) -> None:
        """Fills the window with at least this many unread characters, or with all that are left."""
        while len(self._window) - self._next_index < characters and not self._ended:
            data = self._stream.read(_CHUNK)
            self._bytes_left -= len(data)
            if self._bytes_left < 0:
                raise LimitError(
                    f"it expands to far more text than a file of results of its size does: more than {_RATIO} times"
                )
            self._ended = not data
            self._window = self._window[self._next_index :] + self._decoder.decode(data, final=self._ended)
            self._dropped += self._next_index
            self._next_index = 0

    def _wrong(self, message: str) -> ValueError:
        return ValueError(f"{message}: character {self.at}")


def most_text(file_bytes: int) -> int:
    """Returns the most bytes of text that a file of this size may expand to; reading takes about a second for one MiB.

    >>> most_text(1 << 20) >> 20
    33
    """
    return _LEAST_TEXT + _RATIO * file_bytes
