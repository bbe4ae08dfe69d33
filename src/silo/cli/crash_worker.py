"""The process that checks launches for ``silo crash`` (``python -m silo.cli.crash_worker``)."""

from __future__ import annotations

import sys
from pathlib import Path

from silo.cli.console import say
from silo.commands.examine_crash import serve

__all__ = ["main"]


def main(words: list[str]) -> None:
    """Checks launches of a report and prints a line of JSON for each.

    ``words`` are the report's path and the numbers of the launches; ``--trust`` may come first.
    """
    trust = words[:1] == ["--trust"]
    path, *numbers = words[trust:]
    for line in serve(Path(path), [int(number) for number in numbers], trust=trust):
        say(line)


if __name__ == "__main__":
    main(sys.argv[1:])
