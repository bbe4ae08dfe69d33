"""Chooses the test files that ``scripts/test --fast`` runs: the unit tests of changed files, nearest first.

``changed_tests.py SECONDS`` prints the files to run, one on each line. On standard error it prints the number of
changed files, the tests that it leaves out, and the changed files without tests. A changed file differs from the commit
at which this branch left ``main``, or is untracked.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DURATIONS = ROOT / "build" / "tests" / "seconds.json"  # written by tests/conftest.py
UNKNOWN_S = 3.0  # assumed for a test file that no run has timed
MOST_STEPS = 3  # number of imports; tests farther from a change are left to scripts/test
UNIT = ("tests/unit/", "tests/property/", "tests/native/")
NATIVE = re.compile(r"native/(core|python|frameworks)/(\w+)\.[ch]$")


@dataclass(frozen=True)
class Found:
    """A test file, with the changed file that it tests: ``steps`` imports lie between them."""

    test: str
    changed: str
    steps: int


@dataclass(frozen=True)
class Choice:
    """The tests to run, and the tests that are left out."""

    run: tuple[Found, ...]
    too_many: tuple[Found, ...]
    """Tests that would exceed the time limit."""
    without_tests: tuple[str, ...]
    """Changed files for which no unit test was found."""


def found_tests(changed: Iterable[str], imports: Mapping[str, frozenset[str]]) -> tuple[list[Found], list[str]]:
    """Return the unit tests of changed files, nearest first, and the files without any.

    Args:
        changed: paths within the checkout.
        imports: for every Python file of the checkout, the files that it imports.
    """
    importers: dict[str, set[str]] = {}
    for path, imported in imports.items():
        for one in imported:
            importers.setdefault(one, set()).add(path)
    nearest: dict[str, Found] = {}
    without: list[str] = []
    for path in sorted(changed):
        tests = _tests_of(path, imports, importers)
        if not tests:
            without.append(path)
        for found in tests:
            if found.test not in nearest or found.steps < nearest[found.test].steps:
                nearest[found.test] = found
    return sorted(nearest.values(), key=lambda found: (found.steps, found.test)), without


def _tests_of(path: str, imports: Mapping[str, object], importers: Mapping[str, set[str]]) -> list[Found]:
    native = NATIVE.search(path)
    if native is not None:
        words = set(native[2].split("_"))
        named = [test for test in imports if _is_test(test) and words <= set(Path(test).stem.split("_"))]
        return [Found(test, path, 0 if test.startswith("tests/native/") else 1) for test in named]
    mirrored = _mirrored(path)
    found = {test: Found(test, path, 0) for test in imports if _is_test(test) and Path(test).stem in mirrored}
    steps, waiting = {path: 0}, deque([path] if path in imports else [])
    while waiting:
        one = waiting.popleft()
        if _is_test(one):
            found.setdefault(one, Found(one, path, steps[one]))
            continue
        if steps[one] < MOST_STEPS:
            for importer in importers.get(one, ()):
                if importer not in steps:
                    steps[importer] = steps[one] + 1
                    waiting.append(importer)
    return list(found.values())


def _is_test(path: str) -> bool:
    return path.startswith(UNIT) and Path(path).name.startswith("test_")


def _mirrored(path: str) -> set[str]:
    """Return the names that the test file of a module may have, from the module's name and its folder's."""
    place = Path(path)
    if place.suffix != ".py" or not path.startswith("src/"):
        return set()
    return {f"test_{place.stem}", f"test_{place.parent.name}_{place.stem}", f"test_{place.stem}s"}


def chosen(found: Iterable[Found], without: Iterable[str], seconds: Mapping[str, float], most_s: float) -> Choice:
    """Choose the nearest tests that together take at most ``most_s`` seconds in one process."""
    run: list[Found] = []
    left: list[Found] = []
    spent = 0.0
    for one in found:
        cost = seconds.get(one.test, UNKNOWN_S)
        if spent + cost <= most_s:
            spent += cost
            run.append(one)
        else:
            left.append(one)
    return Choice(tuple(run), tuple(left), tuple(without))


def imports_of_tree(root: Path) -> dict[str, frozenset[str]]:
    """Return the files that each Python file of src, tests, scripts and bench imports; paths are within ``root``."""
    files: dict[str, Path] = {}
    for base, folder in (("src", "src"), ("tests/samples",) * 2, ("tests", "tests"), ("scripts",) * 2, (".", "bench")):
        for path in (root / folder).rglob("*.py"):
            module = path.relative_to(root / base).with_suffix("")
            names = module.parts[:-1] if module.name == "__init__" else module.parts
            files.setdefault(".".join(names), path)
    known = {path: name for name, path in reversed(files.items())}
    return {
        str(path.relative_to(root)): frozenset(
            str(files[one].relative_to(root)) for one in _imported(path, name) if one in files and files[one] != path
        )
        for path, name in known.items()
    }


def _imported(path: Path, module: str) -> set[str]:
    """Return the names of all modules that a file imports, and ``PACKAGE.NAME`` for each name from a package."""
    named: set[str] = set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(filter(None, (*above, base)))
            named.add(base)
            named.update(f"{base}.{alias.name}" for alias in node.names)
    return named


def changed_files(root: Path) -> list[str]:
    """Return the paths that differ from the commit at which this branch left ``main``, and the untracked ones."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.splitlines() if done.returncode == 0 else []

    base = next(filter(None, (git("merge-base", "HEAD", name) for name in ("main", "origin/main"))), ["HEAD"])[0]
    changed = git("diff", "--name-only", base)
    return sorted({*changed, *git("ls-files", "--others", "--exclude-standard")})


def main() -> None:
    """Print the files to run."""
    changed = changed_files(ROOT)
    imports = imports_of_tree(ROOT)
    seconds: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    choice = chosen(*found_tests(changed, imports), seconds, float(sys.argv[1]))

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    say(f"{len(changed)} changed files, {len(choice.run)} test files to run")
    if choice.without_tests:
        say(f"no unit test was found for: {', '.join(choice.without_tests)}")
    if choice.too_many:
        say(f"left out, for they would take too long: {', '.join(one.test for one in choice.too_many)}")
    say("not run: tests marked slow or all, other Tritons and DSLs, fault, docs and GPU tests (scripts/test runs most)")
    print("\n".join(one.test for one in choice.run))


if __name__ == "__main__":
    main()
