"""``python -m tests.fuzz.readers COUNT [--jobs J] [--seconds S] [--sanitized] [--first SEED] [--json FILE]``: readers.

Each seed makes a mutant of a good bundle and gives it, whole and with every blob, to Python's reader and to that of the
C runtime. Either both take it, and then name the same digests for consent, or both refuse it at the same offset. Where
the fields that they name differ, that is counted: of two faults either may be found first. So is a frame that one
version of libzstd reads and another one refuses.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import zstandard

from silo._native import bundle_check, bundle_digests
from silo.bundle.reader import Bundle
from silo.errors import BundleFormatError, BundleVersionError
from silo.settings import child_environment, override

from .reader_corpus import corpus, digests
from .reader_mutants import DEFAULT_MEMORY, mutant
from .sanitizers import NoSanitizersError, tree

__all__ = ["judge", "main", "mutants"]

_ROOT = Path(__file__).parent.parent.parent
_NEWER = 5  # SILO_ERROR_NEWER
_NOTHING: tuple[tuple[str, ...], ...] = ((), (), (), ())  # no plug-ins
_DIGESTS = 0.2  # the share of good files whose digests are compared


@cache
def _zstds_differ() -> bool:
    """Whether the C reader's libzstd is of another version than Python's package has inside."""
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        return False  # then the C reader asks the package
    major, minor, patch = zstandard.ZSTD_VERSION
    return bool(library.ZSTD_versionNumber() != 10000 * major + 100 * minor + patch)


def _python_says(data: bytes, memory: int) -> tuple[str, str, int] | None:
    """What Python's reader has against a file: what kind of error, its field and its offset."""
    try:
        if memory == DEFAULT_MEMORY:
            return _read_all(data)
        with override(file_bytes=memory):
            return _read_all(data)
    except BundleVersionError:
        return ("newer", "", 0)
    except BundleFormatError as error:
        kind = "frame" if "not a zstd frame" in str(error) else "refused"
        return (kind, error.field, error.offset)


def _read_all(data: bytes) -> None:
    bundle = Bundle.from_bytes(data, "bundle")
    bundle.contents()
    for entry in bundle.blobs:
        bundle.read(entry)


def judge(data: bytes, memory: int, *, compare_digests: bool = False) -> tuple[str, str]:
    """What came of a file, and what is wrong with that: "" where the readers agree."""
    try:
        python = _python_says(data, memory)
    except Exception as error:  # noqa: BLE001  # this is what is looked for
        return "broken", f"Python's reader: {type(error).__name__}: {error}"
    native = bundle_check(data, memory, *_NOTHING)
    if native is None and python is not None and python[0] == "frame" and _zstds_differ():
        # 1.5.7 refuses some frames, which no compressor makes, that 1.5.4 reads. What was read has the right hash.
        return "taken by another zstd", ""
    if (python is None) != (native is None):
        return "different", f"Python: {python or 'takes it'}; C: {native or 'takes it'}"
    if native is None:
        if compare_digests and bundle_digests(data, memory, *_NOTHING) != digests(Bundle.from_bytes(data)):
            return "different", "the digests of its variants differ"
        return "taken", ""
    assert python is not None
    code, field, offset, text = native
    what, python_field, python_offset = python
    if (what == "newer") != (code == _NEWER) or not text:
        return "different", f"Python: {python}; C: {native}"
    if what == "newer":
        return "newer", ""
    if offset != python_offset:
        return "different", f"Python: {python}; C: {native}"
    same = field == python_field or (field.endswith("...") and python_field.startswith(field[:-3]))
    return ("refused" if same else f"refused at another field: {python_field} {field}"), ""


def mutants(first: int, last: int) -> Iterator[tuple[int, str, bytes, int]]:
    """The mutants of some seeds: seed, what was done, file, memory."""
    good = corpus()
    for seed in range(first, last):
        random = Random(seed)
        data, memory, what = mutant(random.choice(good), random)
        yield seed, what, data, memory


def _work(first: int, last: int, place: Path, seconds: float) -> None:
    """One worker process: prints each fault, and counts at the end."""
    counts: Counter[str] = Counter()
    others: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT)
    for seed, what, data, memory in mutants(first, last):
        os.pwrite(descriptor, seed.to_bytes(8, "little"), 0)
        found, wrong = judge(data, memory, compare_digests=Random(seed).random() < _DIGESTS)
        if wrong:
            print(json.dumps({"seed": seed, "what": what, "kind": found, "wrong": wrong[:1000]}), flush=True)
        if found.startswith("refused at"):
            others[found.removeprefix("refused at another field: ")] += 1
            found = "refused at another field"
        counts[f"{what.strip('_')}: {found}"] += 1
        counts["files"] += 1
        if time.monotonic() > deadline:
            break
    print(json.dumps({"counts": counts, "others": dict(others.most_common(20))}), flush=True)


def _worker(
    folder: Path, share: tuple[int, int], seconds: float, environment: dict[str, str]
) -> tuple[Counter[str], Counter[str], list[dict[str, Any]]]:
    counts, others, faults = Counter[str](), Counter[str](), list[dict[str, Any]]()
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
            others.update(answer["others"])
        elif isinstance(answer, dict) and "wrong" in answer:
            faults.append(answer)
    if not counts:
        seed = int.from_bytes(place.read_bytes()[:8], "little") if place.exists() else -1
        faults.append({"seed": seed, "kind": "ended", "wrong": f"status {done.returncode}: {text[-3000:]}"})
    return counts, others, faults


def main(words: list[str]) -> int:
    """Run; 1 where the readers differ."""
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
    counts, others, faults = Counter[str](), Counter[str](), list[dict[str, Any]]()
    for one in found:
        counts.update(one[0])
        others.update(one[1])
        faults += one[2]
    seconds = time.monotonic() - started
    summary = {
        "sanitized": options.sanitized,
        "files": counts["files"],
        "seconds": round(seconds, 1),
        "files a second": round(counts["files"] / seconds, 1),
        "faults": len(faults),
        "outcomes": dict(sorted(counts.items())),
        "fields that differ, most often": dict(others.most_common(20)),
    }
    print(json.dumps(summary, indent=1))
    for fault in faults[:20]:
        print(json.dumps(fault))
    if options.json:
        options.json.write_text(json.dumps({**summary, "found": faults}, indent=1))
    return 1 if faults or not counts["files"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
