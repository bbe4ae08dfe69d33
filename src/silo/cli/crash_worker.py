"""The process that checks launches for ``silo crash`` (``python -m silo.cli.crash_worker``)."""

from __future__ import annotations

import sys
from pathlib import Path

from silo.cli.console import say
from silo.commands.examine_crash import serve

__all__ = ["main"]


def main(words: list[str]) -> None:
    """Check the launches of a report whose numbers follow its path; a line of JSON for each."""
    trust = words[:1] == ["--trust"]
    path, *numbers = words[trust:]
    for line in serve(Path(path), [int(one) for one in numbers], trust=trust):
        say(line)


if __name__ == "__main__":
    main(sys.argv[1:])
