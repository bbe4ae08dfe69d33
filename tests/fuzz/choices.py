"""``python -m tests.fuzz.choices CALLS [BUNDLE]...``: calls from Python, calls from C and a search choose the same.

Random calls of every kernel of made-up bundles (:mod:`fuzz.choice_bundles`), and of the bundles that are given, on each
of a CPU, two CUDA GPUs and a ROCm GPU, of which none need be here. The choice is the same code for a call that Python's
guard read and for one of C's tagged arguments: both have to come to the same number and the same programs for the grid,
refuse the same calls and, of some calls, give the same reasons, word by word. For others a brute-force chooser
(:mod:`fuzz.chooser`) ranks all variants too. With ``--sanitized`` the native module is built under gcc's sanitizers.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # as a test has them
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "samples")]

from core_choice import Asked, Checker
from fuzz.choice_bundles import PLACES, Head, heads, write
from fuzz.choice_calls import DEVICES, Case, python_object, random_case
from fuzz.choice_place import Place
from fuzz.chooser import guard_of, ranked
from fuzz.sanitizers import NoSanitizersError, tree
from silo.core.device import Target
from silo.core.variant import Variant
from silo.errors import ArgumentError, BundleError, ExpressionError, NoVariantError
from silo.kernels.bundle_kernels import BundledKernel, load
from silo.launch.runtime import grid_programs, inspect_call
from silo.settings import child_environment

_EXPLAINED = 25  # every so many calls of one outcome
_SEARCHED = 3  # every so many


@dataclass
class Tally:
    """What came of the calls, and where the two differ."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    codes: Counter[int] = field(default_factory=Counter[int])
    explained: int = 0
    searched: int = 0
    differences: list[str] = field(default_factory=list[str])

    @property
    def calls(self) -> int:
        return self.outcomes.total()


class Comparison:
    """One bundle, opened by both."""

    def __init__(self, path: Path, known: Mapping[str, Head]) -> None:
        self._kernels = load(path)
        self._checker = Checker(path.read_bytes())
        self._known = known

    def names(self) -> tuple[str, ...]:
        return tuple(self._kernels)

    def close(self) -> None:
        self._checker.close()

    def held_alike(self, name: str) -> None:
        """Both guards hold the same of a call."""
        kernel: BundledKernel = self._kernels[name]
        flags, extents, grid = self._checker.held(name, len(kernel.signature.parameters))
        assert (flags, extents, grid) == python_held(kernel), name

    def run(self, name: str, place: str, calls: int, seed: int, tally: Tally) -> None:
        """So many calls of one kernel on one device."""
        source = random.Random(f"{seed} {name} {place}")
        kernel: BundledKernel = self._kernels[name]
        head, device = self._known[name], Place(Target.parse(place))
        artifacts = [one.artifact for one in kernel.contents.variants]
        here = [one.variant for one in artifacts if device.runs(one.variant.target, one.blob.kind)]
        for number in range(calls):
            likely: Variant | None = source.choice(here) if here and source.random() < 0.95 else None
            case = random_case(source, head, likely)
            self.compare(name, device, case, tally, f"{name} on {place}, call {number} of seed {seed}")

    def compare(self, name: str, device: Place, case: Case, tally: Tally, where: str) -> None:
        """One call."""
        kernel: BundledKernel = self._kernels[name]
        kind = DEVICES[device.target.kind]
        arguments = {one: python_object(given, kind) for one, given in case.given.items()}
        grid = {} if case.grid is None else {"grid": case.grid}
        call: Any = None
        try:
            call = inspect_call(kernel.launcher, kernel.signature, **arguments, **case.options, **grid)
            expected: object = python_choice(kernel, call, device)
            outcome = "chosen"
        except (ArgumentError, BundleError, ExpressionError) as error:
            expected, outcome = error, type(error).__name__
        tally.outcomes[outcome] += 1
        asked = self._checker.asked(kernel.name, kernel.signature.names, case, kind, device)
        code, found = self._checker.choose(asked)
        tally.codes[code] += 1
        if outcome != "chosen":
            if code == 0:
                tally.differences.append(f"{where}: Python refuses it ({expected}), C chose {found}\n{case}")
        elif code or found != expected:
            tally.differences.append(f"{where}: Python {expected}, C {found} (code {code})\n{case}")
        if call is None:
            return
        if outcome in ("chosen", "NoVariantError") and tally.outcomes[outcome] % _SEARCHED == 0:
            self._search(kernel, call, device, tally, f"{where}\n{case}")
        if tally.outcomes[outcome] % _EXPLAINED == 0 and "grid" not in str(expected):
            self._explain(kernel, call, device, asked, tally, f"{where}\n{case}")

    def _search(self, kernel: BundledKernel, call: Any, device: Place, tally: Tally, where: str) -> None:
        """The linear search over all variants finds the same ones, in the same order."""
        try:
            contents = kernel.contents
        except BundleError:
            return  # some of it is read only by tools
        tally.searched += 1
        found, wanted = list(kernel.rank_numbers(call, device)), ranked(contents, call, device)
        if found != wanted:
            tally.differences.append(f"{where}: the choice gives {found}, the search {wanted}")

    def _explain(self, kernel: BundledKernel, call: Any, device: Place, asked: Asked, tally: Tally, where: str) -> None:
        """A call from Python and one from C are explained in the same words."""
        mine = self._checker.explain(asked)
        tally.explained += mine is not None
        try:
            lines = kernel.explain_on(call, device).split("\n")[2:]
        except BundleError as error:
            lines = [str(error)]
        if mine is not None and mine != lines:
            first = next(pair for pair in zip(lines, mine, strict=False) if pair[0] != pair[1])
            tally.differences.append(f"{where}: Python says {first[0]!r}, C says {first[1]!r}")


def python_choice(kernel: BundledKernel, call: Any, device: Any) -> tuple[int, tuple[bytes, ...]]:
    """The number of the variant and the programs of its grid, as a launch has them."""
    number = next(iter(kernel.rank_numbers(call, device, 1)), None)  # as `choose`, which also says why not
    if number is None:
        raise NoVariantError("no variant")
    if call.grid is not None or kernel.grid is None:
        return number, ()
    variant = kernel.variant(number).artifact.variant
    slots = {name: index for index, name in enumerate(variant.signature.names)}
    known = {**variant.specialization.constant_values, **variant.config.as_dict()}
    return number, grid_programs(kernel.name, kernel.grid, slots, known, device.facts())


def python_held(kernel: BundledKernel) -> tuple[list[int], list[int], bool]:
    """The flags of each parameter, what is held of its extents, and whether the grid is."""
    from silo.launch import runtime

    exact, held = kernel._guard
    assert (set(exact), held) == guard_of(kernel._kernel.head, kernel._kernel.groups()), kernel.name
    plan = runtime._plan(
        kernel.name,
        kernel.signature,
        key=kernel._head.key,
        exact=exact,
        config_names=(*kernel._head.config_names, *kernel._head.derived),
    )
    names = kernel.signature.names
    numbers = runtime._extent_numbers(kernel.name, names, held) if held else tuple(0 for _ in names)
    return [one[4] for one in plan], list(numbers), kernel.holds_grid


def known_heads(kernels: list[Head]) -> dict[str, Head]:
    """By name."""
    return {head.name: head for head in kernels}


def bundles(folder: Path, count: int, seed: int) -> Iterator[Path]:
    """Made-up bundles."""
    for number in range(count):
        path = folder / f"made-{number}.silo"
        write(path, heads(), seed + number)
        yield path


def main(words: list[str]) -> int:
    """Compare; 1 where the two differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.choices", description=__doc__)
    parser.add_argument("calls", type=int, help="of each kernel on each device")
    parser.add_argument("bundle", nargs="*", type=Path, help="bundles of the examples that silo build made")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--made", type=int, default=8, help="made-up bundles, among which the calls are shared")
    parser.add_argument("--made-calls", type=int, help="of each kernel of those, on each device; CALLS")
    parser.add_argument("--sanitized", action="store_true", help="with the native module under gcc's sanitizers")
    parser.add_argument("--damaged", type=int, default=0, help="instead, so many bundles that say odd things")
    options = parser.parse_args(words)
    if options.sanitized:
        return _sanitized(parser, words)
    if options.damaged:
        return _damaged(options)
    started, tally, known = time.monotonic(), Tally(), known_heads(heads())
    with tempfile.TemporaryDirectory(prefix="silo-choices-") as folder:
        made = list(bundles(Path(folder), options.made, options.seed))
        calls = options.calls if options.made_calls is None else options.made_calls
        shares = [(path, -(-calls // len(made))) for path in made] + [(path, options.calls) for path in options.bundle]
        for path, calls in shares:
            comparison = Comparison(path, known)
            for name in comparison.names():
                comparison.held_alike(name)
                for place in PLACES:
                    comparison.run(name, place, calls, options.seed, tally)
            comparison.close()
            print(
                f"[{time.monotonic() - started:.0f} s] {path.name}: {tally.calls} calls, {dict(tally.outcomes)}, "
                f"codes of C {dict(sorted(tally.codes.items()))}, {tally.explained} explained, "
                f"{tally.searched} searched, "
                f"{len(tally.differences)} differences",
                flush=True,
            )
            for one in tally.differences[:5]:
                print(one)
            if tally.differences:
                break
    return 1 if tally.differences else 0


def _sanitized(parser: argparse.ArgumentParser, words: list[str]) -> int:
    """The same in a process over a sanitized build."""
    with tempfile.TemporaryDirectory(prefix="silo-choices-") as folder:
        try:
            environment = tree(Path(folder) / "tree")
        except NoSanitizersError as error:
            parser.error(str(error))
        command = [sys.executable, "-m", "tests.fuzz.choices", *(word for word in words if word != "--sanitized")]
        root = Path(__file__).parents[2]
        return subprocess.run(command, cwd=root, env={**child_environment(), **environment}, check=False).returncode


def _damaged(options: argparse.Namespace) -> int:
    from fuzz.choice_damage import compare_damaged

    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="silo-choices-") as folder:
        compare_damaged(Path(folder), heads(), options.damaged, options.seed, tally)
    print(dict(tally.outcomes), dict(sorted(tally.codes.items())), f"{len(tally.differences)} differences")
    for one in tally.differences[:5]:
        print(one)
    return 1 if tally.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
