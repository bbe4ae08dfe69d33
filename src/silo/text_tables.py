"""Formats results as text: times, sizes, and tables, as plain text for terminals and logs and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from silo.frozen import frozen
from silo.sanitized_text import one_line, printable

__all__ = ["Table", "format_bytes", "format_duration", "format_time"]

_GAP = 2  # blanks between columns
_NARROWEST = 8  # columns are not narrowed below this width


@frozen
class Table:
    """A table: a title, column names, and rows with a cell for each column.

    Each cell is one line, so that its text cannot look like another row; columns named in ``lines`` may have cells of
    several lines. The columns named in ``right`` are aligned to the right.

    >>> print(Table("times", ["kernel", "time"], [["add", "3 us"], ["softmax", "12 us"]], right=["time"]).text(40))
    times
    kernel    time
    -------  -----
    add       3 us
    softmax  12 us
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()
    lines: Sequence[str] = ()

    def cells(self) -> list[list[str]]:
        """Returns the cells as sanitized text."""
        return [
            [
                printable(cell) if name in self.lines else one_line(cell)
                for name, cell in zip(self.columns, row, strict=True)
            ]
            for row in self.rows
        ]

    def text(self, width: int = 200) -> str:
        """Returns the table as lines of at most ``width`` columns; long cells are folded.

        Lines are longer only if the columns at their least width do not fit.
        """
        head = [one_line(name) for name in self.columns]
        cells = [[cell.split("\n") for cell in row] for row in self.cells()]
        wanted = [max([len(name), *(len(line) for row in cells for line in row[at])]) for at, name in enumerate(head)]
        widths = _fitted(wanted, width - _GAP * (len(head) - 1))
        lines = [] if not self.title else [one_line(self.title)]
        lines.append(self._line([[name] for name in head], widths))
        lines.append((" " * _GAP).join("-" * width for width in widths))
        lines += [self._line(row, widths) for row in cells]
        return "\n".join(lines)

    def _line(self, row: list[list[str]], widths: list[int]) -> str:
        folded = [
            [part for line in cell for part in _fold(line, width)] for cell, width in zip(row, widths, strict=True)
        ]
        lines: list[str] = []
        for at in range(max(map(len, folded))):
            parts = [cell[at] if at < len(cell) else "" for cell in folded]
            aligned = [
                part.rjust(width) if name in self.right else part.ljust(width)
                for part, width, name in zip(parts, widths, self.columns, strict=True)
            ]
            lines.append((" " * _GAP).join(aligned).rstrip())
        return "\n".join(lines)

    def html(self) -> str:
        """Returns the table as HTML, for a notebook."""
        from html import escape  # noqa: PLC0415  # notebooks alone need it

        aligned = [
            'style="text-align:right"' if name in self.right else 'style="text-align:left"' for name in self.columns
        ]
        head = "".join(
            f"<th {style}>{escape(one_line(name))}</th>" for name, style in zip(self.columns, aligned, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(
                f"<td {style}>{escape(cell).replace(chr(10), '<br>')}</td>"
                for cell, style in zip(row, aligned, strict=True)
            )
            + "</tr>"
            for row in self.cells()
        )
        return f"<table><caption>{escape(one_line(self.title))}</caption><tr>{head}</tr>{body}</table>"


def _fitted(wanted: list[int], width: int) -> list[int]:
    """Returns column widths that sum to at most ``width``: the widest columns are narrowed first."""
    widths = list(wanted)
    while sum(widths) > width and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _fold(line: str, width: int) -> list[str]:
    """Splits a line into parts of at most ``width`` columns, at blanks if possible."""
    if len(line) <= width:
        return [line]
    parts: list[str] = []
    while len(line) > width:
        at = line.rfind(" ", 1, width + 1)
        parts.append(line[: at if at > 0 else width].rstrip())
        line = line[at + 1 if at > 0 else width :]
    return [*parts, line] if line else parts


# ---- Figures ----


def format_time(time_ns: int) -> str:
    """Formats a time with a suitable unit.

    >>> format_time(1234567)
    '1.23 ms'
    """
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if time_ns >= size:
            return f"{time_ns / size:.3g} {unit}" if time_ns < 1000 * size else f"{time_ns / size:.0f} {unit}"
    return f"{time_ns} ns"


def format_duration(seconds: float) -> str:
    """Formats a duration in seconds, or in minutes and seconds.

    >>> format_duration(2.13), format_duration(75.0)
    ('2.1 s', '1 min 15 s')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def format_bytes(size: int) -> str:
    """Formats a size with a suitable unit.

    >>> format_bytes(2048), format_bytes(3_500_000)
    ('2.0 KiB', '3.3 MiB')
    """
    value = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
