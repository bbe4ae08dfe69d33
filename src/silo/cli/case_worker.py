"""``python -m silo.cli.case_worker``: the process that ``silo run`` starts to run cases.

It runs the same command, but writes rows to a pipe instead of printing a table.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from silo.compile.worker_serving import die_with_parent

if TYPE_CHECKING:
    from silo.commands.run_cases import CaseOutcome

__all__ = ["PipedRows", "main"]


class PipedRows:
    """Selects the cases that this process runs, and writes their results to a pipe.

    Implements :class:`silo.commands.run_cases.CaseWatch`.
    """

    def __init__(self, chosen: dict[str, Any]) -> None:
        only = chosen["only"]
        self._only = None if only is None else frozenset[int](only)
        self._but = frozenset[int](chosen["but"])
        self._rows = int(chosen["rows"])

    def wants(self, number: int) -> bool:
        """Returns whether to run the case with this number."""
        return number not in self._but and (self._only is None or number in self._only)

    def begun(self, number: int, kernel: str, case: str) -> None:
        """Writes that a case begins."""
        self._write({"begun": number, "kernel": kernel, "case": case})

    def over(self, number: int, outcome: CaseOutcome) -> None:
        """Writes that a case is over and its arrays are freed."""
        self._write({"over": number, "row": asdict(outcome)})

    def done(self) -> None:
        """Writes that all cases are over."""
        self._write({"done": True})

    def _write(self, message: dict[str, Any]) -> None:
        pending = memoryview(json.dumps(message).encode() + b"\n")
        while pending:
            pending = pending[os.write(self._rows, pending) :]


def main() -> None:
    """Runs the command line. ``sys.argv`` has the selection of cases as JSON, then the arguments of ``silo``."""
    die_with_parent()
    from silo.cli import run  # noqa: PLC0415  # the command line of both processes
    from silo.cli.main import main as command_line  # noqa: PLC0415

    chosen, *arguments = sys.argv[1:]
    run.watch = PipedRows(json.loads(chosen))
    sys.argv[1:] = arguments
    command_line()


if __name__ == "__main__":
    main()
