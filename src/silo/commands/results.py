"""Results of commands: rows for programs, which terminals, logs and notebooks show as a table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, overload

from silo.compile.build_list import LeftOut
from silo.sanitized_text import printable
from silo.text_tables import Table, format_bytes, format_time

__all__ = [
    "BuildRow",
    "BuildSummary",
    "CaseOutcome",
    "CaseResults",
    "TuneResults",
    "TuneRow",
]

_LONGEST_CELL = 40  # characters of a message in a table, at most; a longer message is printed below the table

Row = TypeVar("Row")


class _Shown(Protocol):
    """A result that is shown as a table with lines below it."""

    def table(self) -> Table: ...

    def lines(self) -> tuple[str, ...]: ...


def _printable_lines(result: _Shown) -> list[str]:
    """Returns the lines of a result, sanitized for a terminal: messages may hold text of a kernel's author."""
    return [printable(part) for line in result.lines() for part in line.splitlines()]


def shown(result: _Shown) -> str:
    """Returns a result as text: its table, as wide as the terminal, and its lines."""
    return "\n".join([result.table().text(shutil.get_terminal_size((120, 50)).columns), *_printable_lines(result)])


def shown_as_html(result: _Shown) -> str:
    """Returns a result as HTML for a notebook."""
    from html import escape  # noqa: PLC0415  # notebooks alone need it

    lines = "<br>".join(map(escape, _printable_lines(result)))
    return result.table().html() + (f"<p>{lines}</p>" if lines else "")


class _Rows(Sequence[Row], Generic[Row]):
    """The rows of a result, in the order of the cases."""

    def __init__(self, title: str, rows: Sequence[Row]) -> None:
        self.title = title
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, at: int) -> Row: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Row, ...]: ...

    def __getitem__(self, at: int | slice) -> Row | tuple[Row, ...]:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def table(self) -> Table:
        """Returns a table with one row for each case."""
        raise NotImplementedError

    def lines(self) -> tuple[str, ...]:
        """Returns the lines below the table."""
        return ()

    def __repr__(self) -> str:
        """Returns the table and the lines, as the command prints them."""
        return shown(self)

    def _repr_html_(self) -> str:
        """Returns the table and the lines for a notebook."""
        return shown_as_html(self)


@dataclass(frozen=True, slots=True)
class BuildRow:
    """A kernel built for a target: the number of its variants and configs, and the config of its first case.

    ``choice`` is that config, and ``measured`` is its decision source. ``space`` is the number of configs of all its
    cases, and ``configs`` the number of those that are packed; both numbers are 0 if the kernel has no choice of
    configs. ``serves`` lists the extents that its variants were built for; it is empty if they take any extents.
    """

    kernel: str
    target: str
    variants: int
    configs: int
    space: int
    choice: str
    measured: str
    serves: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class BuildSummary:
    """The result of a build: its file and counts, the kernels that each target lacks, and the state of the signature.

    ``plans`` are the names of the plans in the bundle.
    """

    path: str
    size_bytes: int
    identity: str
    variants: int
    blobs: int
    compiled: int
    reused: int
    seconds: float
    rows: tuple[BuildRow, ...]
    remarks: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    signature: str = ""
    plans: tuple[str, ...] = ()

    def table(self) -> Table:
        """Returns a table with one row for each kernel and target."""
        rows = [
            [
                row.kernel,
                row.target,
                str(row.variants),
                f"{row.configs} of {row.space}" if row.space else "",
                row.choice,
                row.measured,
            ]
            for row in self.rows
        ]
        columns = ["kernel", "target", "variants", "configs packed", "config", "chosen by"]
        return Table(self.path, columns, rows, right=["variants", "configs packed"])

    def lines(self) -> tuple[str, ...]:
        """Returns the remarks, the kernels that were left out, and the size and origin of the code."""
        lines = [
            f"{row.kernel} for {row.target} serves only " + " | ".join(row.serves) for row in self.rows if row.serves
        ]
        lines += [*self.remarks, *map(str, self.left_out)]
        if any(row.configs < row.space and row.measured != "measured" for row in self.rows):
            lines.append("what is not packed cannot be measured on the device: --configs all packs it")
        lines.append(
            f"{self.path}: {format_bytes(self.size_bytes)}, {self.variants} variants, {self.blobs} blobs, "
            f"{self.compiled} compiled, {self.reused} from the store, {self.seconds:.1f} s"
        )
        if self.plans:
            lines.append(f"{self.path}: plans {', '.join(self.plans)}")
        return (*lines, *([f"{self.path}: {self.signature}"] if self.signature else []))

    def __repr__(self) -> str:
        """Returns the table and the lines, as the command prints them."""
        return shown(self)

    def _repr_html_(self) -> str:
        """Returns the table and the lines for a notebook."""
        return shown_as_html(self)


@dataclass(frozen=True, slots=True)
class TuneRow:
    """The result of tuning one case.

    ``locked`` is the case's config in the lock file after tuning, and ``locked_reason`` why. If several cases of a
    kernel lack a usable config, ``failure`` of the first describes all of them
    (:func:`silo.tuner.failures.failure_of`). ``remarks`` list work besides measuring the space, and failures of the
    store.
    """

    kernel: str
    case: str
    winner: str | None
    time_ns: int | None
    measured: int
    reused: int
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    reason: str = ""
    locked: str | None = None
    locked_reason: str = ""
    failure: str = ""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The outcome of a case. ``time_ns`` is the median of a few launches after the checked one; None: not timed."""

    kernel: str
    case: str
    config: str
    ok: bool
    time_ns: int | None = None
    max_error: float | None = None
    message: str = ""


class TuneResults(_Rows[TuneRow]):
    """The results of ``silo.tune``: a sequence of :class:`TuneRow`, one for each case.

    ``lock`` is the path of the lock file.
    """

    def __init__(self, title: str, rows: Sequence[TuneRow], lock: str = "") -> None:
        super().__init__(title, rows)
        self._lock = lock or "lock"

    def table(self) -> Table:
        """Returns a table with one row for each case: winner, time, and the number of measured configs."""
        rows = [
            [
                row.kernel,
                row.case,
                row.winner or "none",
                format_time(row.time_ns) if row.time_ns is not None else "",
                str(row.measured),
                str(row.reused),
                ", ".join(f"{count} {kind}" for kind, count in row.failures.items()),
                row.reason,
            ]
            for row in self
        ]
        columns = ["kernel", "case", "winner", "time", "measured", "reused", "failures", "why"]
        return Table(self.title, columns, rows, right=["time", "measured", "reused"], lines=["why"])

    def lines(self) -> tuple[str, ...]:
        """Returns the remarks about each case, and the decisions of the lock file."""
        remarks = [f"{row.kernel} {row.case}: {remark}" for row in self for remark in row.remarks]
        locked = [
            f"{self._lock}: {row.kernel} {row.case}: "
            + (f"{row.locked} ({row.locked_reason})" if row.locked else row.locked_reason)
            for row in self
            if row.locked or row.locked_reason
        ]
        return (*remarks, *locked)


class CaseResults(_Rows[CaseOutcome]):
    """The outcomes of cases that ``silo.run`` or ``silo.check`` ran: a sequence of :class:`CaseOutcome`."""

    @property
    def ok(self) -> bool:
        """Whether every case had the right result."""
        return all(row.ok for row in self)

    def table(self) -> Table:
        """Returns a table with one row for each case: config, time of a launch, largest error, and result."""
        rows = [
            [
                row.kernel,
                row.case,
                row.config,
                format_time(row.time_ns) if row.time_ns is not None else "",
                f"{row.max_error:.3g}" if row.max_error is not None else "",
                "ok" if row.ok else "failed" if _is_long(row.message) else row.message,
            ]
            for row in self
        ]
        columns = ["kernel", "case", "config", "time", "max error", "result"]
        return Table(self.title, columns, rows, right=["time", "max error"])

    def lines(self) -> tuple[str, ...]:
        """Returns the messages that are too long for the table, with their kernel and case."""
        return tuple(f"{row.kernel} {row.case}: {row.message}" for row in self if not row.ok and _is_long(row.message))


def _is_long(message: str) -> bool:
    return "\n" in message or len(message) > _LONGEST_CELL
