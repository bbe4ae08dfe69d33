"""Reports of jax's interpreter of TPUs: races that it prints or raises, and the place of a failed access."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import TextIO

from silo.frozen import frozen
from silo.kinds.pallas.front.pallas_installation import jax_module

__all__ = ["Access", "CapturedReports", "Race", "listening", "races_in"]

_MARK = "RACE DETECTED"
# Logs the errors of callbacks; the place in the body is the cause of the error.
_LOGGER = "jax._src.callback"
_FIRST_DMA = 100  # from here on numbers of "devices" are copies


@frozen
class Access:
    """One access of a race: a ``read`` or ``write`` of a part of a buffer, by a copy (DMA) or the body."""

    kind: str
    memory: str
    part: str
    by_copy: bool
    place: str

    def __str__(self) -> str:
        who = "a copy that was started" if self.by_copy else f"the {self.kind}"
        return f"{who} at {self.place} {'reads' if self.kind == 'read' else 'writes'} it"


@frozen
class Race:
    """Two accesses without a fixed order, of which at least one writes."""

    first: Access
    second: Access


@frozen
class CapturedReports:
    """``races`` in the order of their reports; ``places``: the author's lines at which callbacks failed."""

    races: list[Race]
    places: list[str]


@contextmanager
def listening() -> Generator[CapturedReports]:
    """Collects races that jax prints within the block instead of printing them; other output is printed."""
    captured = CapturedReports([], [])
    out, logger = sys.stdout, logging.getLogger(_LOGGER)
    handler = _Handler(captured)
    was = logger.propagate
    sys.stdout = _Tee(out, captured)
    logger.addHandler(handler)
    logger.propagate = False  # the raised error has the same text
    try:
        yield captured
    finally:
        logger.propagate = was
        logger.removeHandler(handler)
        sys.stdout = out


def races_in(text: str) -> list[Race]:
    r"""Returns the races that a text of jax reports.

    >>> said = "RACE DETECTED\n  read of ('vmem', 102, 0, 0)[()] from 0, 0, k.py:15:6 (k)\n  clock: [4 0]\n"
    >>> (race,) = races_in(said + "  write of ('vmem', 102, 0, 0)[()] from 100, 0 k.py:14:40 (k)\n  clock: [1 3]\n")
    >>> race.first.place, race.second.by_copy
    ('k.py:15', True)
    """
    found: list[Race] = []
    for part in text.split(_MARK)[1:]:
        accesses = [one for line in part.splitlines() if (one := _access(line.strip())) is not None]
        if len(accesses) >= 2:  # a race needs two accesses
            found.append(Race(accesses[0], accesses[1]))
    return found


def _access(line: str) -> Access | None:
    kind, joined, rest = line.partition(" of (")
    if kind not in ("read", "write") or not joined:
        return None
    key, _, rest = rest.partition(")[")
    part, _, rest = rest.partition("] from ")
    device, _, rest = rest.partition(", ")
    place = rest.partition(" (")[0].rpartition(" ")[2]
    file, _, numbers = place.partition(":")
    if "/" in place or ":" in place:
        file, _, numbers = Path(place).name.partition(":")
    memory = key.partition(",")[0].strip("'\" ")
    named = f"{file}:{numbers.partition(':')[0]}" if numbers else place
    return Access(kind, memory, part, device.isdigit() and int(device) >= _FIRST_DMA, named)


class _Tee(io.TextIOBase):
    def __init__(self, out: TextIO, captured: CapturedReports) -> None:
        self._out, self._captured = out, captured
        self._swallows = False  # the end of the line that print writes by itself

    def write(self, text: str) -> int:
        if text.startswith(_MARK):
            self._captured.races.extend(races_in(text))
            self._swallows = True
        elif not (self._swallows and text == "\n"):
            self._swallows = False
            self._out.write(text)
        else:
            self._swallows = False
        return len(text)

    def flush(self) -> None:
        self._out.flush()


class _Handler(logging.Handler):
    def __init__(self, captured: CapturedReports) -> None:
        super().__init__()
        self._captured = captured

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and (place := _place(error)):
            self._captured.places.append(place)


def _place(error: BaseException) -> str:
    """Returns the innermost line of the author's own code, in the traceback of an error or of its causes."""
    folder = str(Path(str(jax_module().__file__)).parent)
    while True:
        frames = [(one.f_code.co_filename, line) for one, line in walk_tb(error.__traceback__)]
        own = [one for one in frames if not one[0].startswith((folder, "<")) and "/silo/kinds/" not in one[0]]
        if own:
            return f"{Path(own[-1][0]).name}:{own[-1][1]}"
        if error.__cause__ is None:
            return ""
        error = error.__cause__
    return ""
