"""Prints tables of the demo, at most 80 columns wide."""

from __future__ import annotations

import re
from collections.abc import Sequence

WIDTH = 80
_CASE = 30


def case_name(label: str) -> str:
    """Return the label of a case; without the names of its values if it is long.

    >>> case_name("n=65536"), case_name("size=(200, 333, 150),activation=leaky_relu")
    ('n=65536', '(200, 333, 150),leaky_relu')
    """
    short = label if len(label) <= _CASE else re.sub(r"\b\w+=", "", label).strip(",")
    return short[:_CASE]


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: int) -> None:
    """Print rows under their columns; the last ``right`` columns are aligned to the right.

    >>> print_table(["kernel", "ratio"], [["add", "0.93"]], right=1)
    kernel  ratio
    -------------
    add      0.93
    """
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    left = len(columns) - right
    lines = [
        "  ".join(f"{cell:<{width}}" if at < left else f"{cell:>{width}}" for at, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(cells, widths, strict=True)) for cells in (columns, *rows))
    ]
    for line in (lines[0], "-" * max(map(len, lines)), *lines[1:]):
        print(line.rstrip()[:WIDTH])
