"""``python -m tests.fuzz.readers COUNT [--jobs J] [--seconds S] [--sanitized] [--first SEED] [--json FILE]``: readers.

Each seed makes a mutant of a good bundle and gives it, whole and with every blob, to the reader. A file that it takes
is listed by a simple lister too (:mod:`fuzz.bundle_lister`), which has to find the same bytes and the same digests for
consent; a file that it refuses has a code, a field, an offset within the file and a text that a terminal can show.
What the reader said of 20,000 mutants is kept (:mod:`fuzz.golden`) and compared in ``tests/native``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from silo.settings import child_environment

from .bundle_lister import Listing, digest_of, listing
from .reader_corpus import corpus
from .reader_mutants import is_shown, mutant
from .sanitizers import NoSanitizersError, tree
from .whole_file import host_digests, refusal

__all__ = ["Verdict", "judge", "main", "mutants", "verdict_on"]

_ROOT = Path(__file__).parent.parent.parent
_CODES = range(2, 8)  # SILO_ERROR_FOREIGN to SILO_ERROR_CODEC
_NEWER = 5
_NO_OFFSET = (1 << 64) - 1

# The digest of everything that was read; or the error's code, field, offset and text.
Verdict: TypeAlias = "str | tuple[int, str, int, str]"


def verdict_on(data: bytes, memory: int) -> Verdict:
    """What the reader makes of a file, every kernel, variant and blob of it."""
    refused = refusal(data, memory)
    return digest_of(host_digests(data, memory)) if refused is None else refused


def judge(data: bytes, memory: int) -> tuple[str, str]:
    """What came of a file, and what is wrong with that: "" where nothing is."""
    verdict = verdict_on(data, memory)
    if isinstance(verdict, str):
        try:
            listed: Listing = listing(data)
        except Exception as error:  # noqa: BLE001  # of a damaged file it raises anything
            return "different", f"taken, and the lister says {type(error).__name__}: {error}"
        found = digest_of(listed.digests)
        return ("taken", "") if found == verdict else ("different", f"read to {verdict}, and listed to {found}")
    code, field, offset, text = verdict
    wrong = [
        *([f"the code {code}"] if code not in _CODES else []),
        *(["no text"] if not text or not is_shown(text) else []),
        *(["no field"] if not field and code != _NEWER else []),
        *([f"the offset {offset}"] if offset > len(data) and offset != _NO_OFFSET else []),
    ]
    if wrong:
        return "different", f"refused with {', '.join(wrong)}: {verdict}"
    return ("newer" if code == _NEWER else "refused"), ""


def mutants(first: int, last: int, good: Sequence[bytes] | None = None) -> Iterator[tuple[int, str, bytes, int]]:
    """The mutants of some seeds: seed, what was done, file, memory; of bundles of today's writer by default."""
    files = corpus() if good is None else good
    for seed in range(first, last):
        random = Random(seed)
        data, memory, what = mutant(random.choice(files), random)
        yield seed, what, data, memory


def _work(first: int, last: int, place: Path, seconds: float) -> None:
    """One worker process: prints each fault, and counts at the end."""
    counts: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT)
    for seed, what, data, memory in mutants(first, last):
        os.pwrite(descriptor, seed.to_bytes(8, "little"), 0)
        found, wrong = judge(data, memory)
        if wrong:
            print(json.dumps({"seed": seed, "what": what, "kind": found, "wrong": wrong[:1000]}), flush=True)
        counts[f"{what.strip('_')}: {found}"] += 1
        counts["files"] += 1
        if time.monotonic() > deadline:
            break
    print(json.dumps({"counts": counts}), flush=True)


def _worker(
    folder: Path, share: tuple[int, int], seconds: float, environment: dict[str, str]
) -> tuple[Counter[str], list[dict[str, Any]]]:
    counts, faults = Counter[str](), list[dict[str, Any]]()
    place = folder / f"at-{share[0]}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.readers", "--worker", *map(str, share), place, str(seconds)],
        cwd=_ROOT,
        env={**child_environment(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    text = done.stdout.decode(errors="replace")
    for line in text.splitlines():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and "counts" in answer:
            counts.update(answer["counts"])
        elif isinstance(answer, dict) and "wrong" in answer:
            faults.append(answer)
    if not counts:
        seed = int.from_bytes(place.read_bytes()[:8], "little") if place.exists() else -1
        faults.append({"seed": seed, "kind": "ended", "wrong": f"status {done.returncode}: {text[-3000:]}"})
    return counts, faults


def main(words: list[str]) -> int:
    """Run; 1 where a fault was found."""
    if words[:1] == ["--worker"]:
        _work(int(words[1]), int(words[2]), Path(words[3]), float(words[4]))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.readers", description=__doc__)
    parser.add_argument("count", type=int, help="how many files")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes at a time")
    parser.add_argument("--seconds", type=float, default=1e9, help="for so many seconds at most")
    parser.add_argument("--sanitized", action="store_true", help="with the native module under gcc's sanitizers")
    parser.add_argument("--json", type=Path, help="write the summary and every fault here")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="silo-readers-") as name:
        try:
            environment = tree(Path(name) / "tree") if options.sanitized else {}
        except NoSanitizersError as error:
            parser.error(str(error))
        started = time.monotonic()
        size = -(-options.count // options.jobs)
        last = options.first + options.count
        shares = [(at, min(at + size, last)) for at in range(options.first, last, size)]
        with ThreadPoolExecutor(options.jobs) as pool:
            found = list(pool.map(lambda share: _worker(Path(name), share, options.seconds, environment), shares))
    counts, faults = Counter[str](), list[dict[str, Any]]()
    for one in found:
        counts.update(one[0])
        faults += one[1]
    seconds = time.monotonic() - started
    summary = {
        "sanitized": options.sanitized,
        "files": counts["files"],
        "seconds": round(seconds, 1),
        "files a second": round(counts["files"] / seconds, 1),
        "faults": len(faults),
        "outcomes": dict(sorted(counts.items())),
    }
    print(json.dumps(summary, indent=1))
    for fault in faults[:20]:
        print(json.dumps(fault))
    if options.json:
        options.json.write_text(json.dumps({**summary, "found": faults}, indent=1))
    return 1 if faults or not counts["files"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
