"""Golden verdicts: of the reader on 20,000 mutants of bundles, and of the choice on 20,000 calls.

A file is JSON lines under xz: a head, then a verdict a line, in order. The head has a hash for each block of ``BLOCK``
cases, of the cases themselves, so that a changed generator of mutants or calls (or another Python with another
``random``) is told apart from a changed verdict. ``python -m tests.fuzz.golden`` compares all of them; with ``--write``
it writes the files anew, which is right only if an error's text was meant to change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["BLOCK", "CASES", "Case", "Golden", "blocks_of_this_run", "compare", "read"]

FOLDER = Path(__file__).parents[1] / "data" / "golden"
BLOCK = 50
CASES = 20_000


@dataclass(frozen=True)
class Case:
    """One case: its number, its bytes (for the block's hash), words for people, and a function of today's verdict."""

    number: int
    content: bytes
    words: str
    verdict: Callable[[], Any]


Makers: TypeAlias = "Callable[[int, int], Iterable[Case]]"


@dataclass(frozen=True)
class Golden:
    """A file of verdicts."""

    head: dict[str, Any]
    verdicts: tuple[Any, ...]

    def difference(self, cases: Sequence[Case]) -> str:
        """The first case of a block with another verdict, with the kept verdict and today's; "" without one."""
        first = cases[0].number
        if _hash(cases) != self.head["blocks"][first // BLOCK]:
            return (
                f"cases {first} to {cases[-1].number} are not those that were recorded: their generator has changed, "
                f"or Python's random (recorded with {self.head['python']}, this is {_python()})"
            )
        for case in cases:
            kept, found = self.verdicts[case.number], _plain(case.verdict())
            if kept != found:
                return f"case {case.number} ({case.words})\n  was: {_shown(kept)}\n  is:  {_shown(found)}"
        return ""


def _shown(verdict: Any) -> str:
    return json.dumps(verdict, ensure_ascii=False)


def _plain(verdict: Any) -> Any:
    return json.loads(json.dumps(verdict))


def _python() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def _hash(cases: Iterable[Case]) -> str:
    found = hashlib.sha256()
    for case in cases:
        found.update(len(case.content).to_bytes(8, "little") + case.content)
    return found.hexdigest()[:12]


def read(name: str) -> Golden:
    """The verdicts kept under a name."""
    lines = lzma.decompress((FOLDER / f"{name}.jsonl.xz").read_bytes()).decode().splitlines()
    head, *verdicts = map(json.loads, lines)
    return Golden(head, tuple(verdicts))


def blocks_of_this_run(count: int = CASES // BLOCK) -> list[int]:
    """The first case of each block that a test compares: of every tenth, or of all with SILO_TEST_GOLDEN=all."""
    step = 1 if os.environ.get("SILO_TEST_GOLDEN") == "all" else 10
    return [number * BLOCK for number in range(0, count, step)]


def compare(name: str, make: Makers, firsts: Iterable[int]) -> list[str]:
    """The differences in these blocks, each as text."""
    golden = read(name)
    found = (golden.difference(list(make(first, first + BLOCK))) for first in firsts)
    return [one for one in found if one]


def _write(name: str, make: Makers) -> None:
    blocks: list[str] = []
    verdicts: list[str] = []
    cases: Iterator[Case] = iter(make(0, CASES))
    while block := list(islice(cases, BLOCK)):
        blocks.append(_hash(block))
        verdicts += [json.dumps(case.verdict(), separators=(",", ":"), ensure_ascii=False) for case in block]
    head = {"schema": "golden-verdicts/1", "python": _python(), "blocks": blocks}
    text = "\n".join((json.dumps(head), *verdicts)) + "\n"
    path = FOLDER / f"{name}.jsonl.xz"
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{path}: {len(verdicts)} verdicts, {path.stat().st_size} bytes")


def main(words: list[str]) -> int:
    """Compare or write; 1 where a verdict differs."""
    from .golden_calls import calls
    from .golden_mutants import reader_mutants

    makers: dict[str, Makers] = {"mutants": reader_mutants, "calls": calls}
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.golden", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(makers)}; all of them")
    parser.add_argument("--write", action="store_true", help="write today's verdicts")
    options = parser.parse_args(words)
    differences: list[str] = []
    for name in options.names or makers:
        if options.write:
            _write(name, makers[name])
        else:
            differences += compare(name, makers[name], range(0, CASES, BLOCK))
    for one in differences[:20]:
        print(one)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.path[:0] = [str(FOLDER.parents[1]), str(FOLDER.parents[1] / "samples")]  # as a test has them
    sys.exit(main(sys.argv[1:]))
