"""One worker process of ``tests.fuzz.bundles``: opens, shows, explains, binds, checks and calls what liars made.

Where it is stands in a file that the command maps too, so that a death or a hang has a seed.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from silo.building.ready_cases import prepare_recipe
from silo.bundle.documents import case_recipes, measured_trials
from silo.commands.run_cases import checking_mode as check
from silo.errors import SiloError
from silo.kernels.bundle_kernels import BundledKernel, load
from silo.machine.device_plugins import device_named
from silo.tuning.case_tuning import materializer

from .bundle_ways import WAYS, Place
from .guarded import Guarded
from .lies import Liar

__all__ = ["Attacked", "main"]

_MEMORY = 1 << 30  # bytes besides what a worker has when it starts
_RARER = 10
_CHECKED = 1000  # one call in so many compiles the kernel's text and runs it in checking mode
_SAID_S = 2  # between two lines that say what came of the bundles


class WrongError(Exception):
    """A call that was let through did something else than what was built."""


class Attacked:
    """Attacks bundles made of ``good`` ones, one a seed; ``path`` is where each lies."""

    def __init__(self, good: list[bytes], path: Path) -> None:
        self.liars = [Liar(data) for data in good]
        self.path = path
        self.counts: Counter[str] = Counter()
        self.device = device_named("cpu")
        self.guarded = [Guarded() for _ in range(3)]
        self.place = Place(path.with_suffix(".out"))

    def attack(self, seed: int) -> list[str]:
        """What went wrong with the bundle of one seed."""
        data, told = self.liars[seed % len(self.liars)].lie(seed)
        self.path.write_bytes(data)
        wrong: list[str] = []

        def attempt(what: str, action: Callable[[], object]) -> object:
            try:
                found = action()
            except SiloError as error:
                self.counts[f"{what}: {type(error).__name__}"] += 1
                return None
            except Exception as error:  # noqa: BLE001  # this is what is looked for
                wrong.append(f"{what}: {type(error).__name__}: {str(error)[:300]} [{told}]")
                return None
            self.counts[f"{what}: done"] += 1
            return found

        random = Random(~seed)
        kernels: Any = attempt("open", lambda: load(self.path))
        names = [] if kernels is None else list(kernels)
        for name in random.sample(names, 1) if names and random.random() < 0.9 else names:
            kernel = attempt("kernel", partial(kernels.__getitem__, name))
            if isinstance(kernel, BundledKernel):
                if random.random() < 0.1:
                    attempt("contents", lambda kernel=kernel: kernel.contents)
                    attempt("cases", lambda kernel=kernel: self._cases(kernel))
                    attempt("trials", lambda kernel=kernel: list(measured_trials(kernel.bundle, kernel.name)))
                attempt("call", lambda kernel=kernel: self._call(kernel, random))
        rare = 1 if kernels is not None else _RARER  # what does not open is refused by each in the same way
        for way in WAYS:
            if random.random() * way.one_in * rare < 1:
                attempt(way.name, lambda way=way: self.place.put_through(way, self.path))
        self.counts["bundles"] += 1
        return wrong

    def _cases(self, kernel: BundledKernel) -> None:
        """Make the arrays of its cases, and launch nothing: what is run is vouched for, what is read is not."""
        for recipe in case_recipes(kernel.bundle, kernel.name):
            prepare_recipe(recipe, materializer(None, self.device))

    def _call(self, kernel: BundledKernel, random: Random) -> None:
        """Call it as a program calls the kernel that it is said to be, and look at what came of it."""
        form = FORMS.get(kernel.name.rpartition(".")[2])
        if form is None:
            form = FORMS[random.choice(list(FORMS))]
        arguments, expected = form(self.guarded, random)
        way = random.random()
        target: Any = kernel
        if way < 0.1:
            kernel.explain(*arguments)
        elif way < 0.2:
            target = kernel.bind(*arguments)
        elif way < 0.3:
            kernel.compiled(*arguments)
        elif way < 0.4:
            kernel.warmup(*arguments)
        elif way < 0.4 + 1 / _CHECKED:
            target = check(kernel)
        target(*arguments)
        self.counts["launched"] += 1
        for guard in self.guarded:
            if not guard.is_whole():
                raise WrongError("bytes before an array were written")
        for place, values in expected.items():
            if not np.array_equal(arguments[place], values):
                raise WrongError(f"argument {place} is {arguments[place][:8]}, not {values[:8]}")


Arguments = tuple[list[Any], dict[int, np.ndarray]]


def _add(guarded: list[Guarded], random: Random) -> Arguments:
    n = random.choice((40, 61, 100))
    x, y = np.arange(n, dtype=np.float32), np.arange(n, dtype=np.float32)[::-1].copy()
    out = np.full(n, -1, np.float32)
    arrays = [
        guarded[0].array(x, readonly=True),
        guarded[1].array(y, readonly=True),
        guarded[2].array(out, readonly=False),
    ]
    return [*arrays, n], {2: x + y}


def _shift(guarded: list[Guarded], random: Random) -> Arguments:
    n = random.choice((40, 61, 100))
    x = np.arange(n, dtype=np.int32)
    arrays = [guarded[0].array(x, readonly=True), guarded[1].array(np.zeros(n, np.int32), readonly=False)]
    return [*arrays, n], {1: x + 3}


def _order(guarded: list[Guarded], random: Random) -> Arguments:
    n = random.choice((40, 61))
    x = np.arange(n, dtype=np.float32)[::-1].copy()
    return [guarded[0].array(x, readonly=False), n, 2.0], {0: np.sort(x) * np.float32(2)}


FORMS: dict[str, Callable[[list[Guarded], Random], Arguments]] = {"add": _add, "shift": _shift, "order": _order}


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    allowed = pages * mmap.PAGESIZE + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(words: list[str]) -> int:
    """``FOLDER PATH PROGRESS FIRST LAST``: attack, one line for each fault, the counts at the end."""
    folder, path, progress, first, last = words
    with Path(progress).open("r+b") as file:
        place = mmap.mmap(file.fileno(), 8)
    attacked = Attacked([one.read_bytes() for one in sorted(Path(folder).glob("good-*.silo"))], Path(path))
    _bound_memory()
    said = time.monotonic()
    for seed in range(int(first), int(last)):
        struct.pack_into("<q", place, 0, seed)
        for wrong in attacked.attack(seed):
            print(json.dumps({"seed": seed, "wrong": wrong}), flush=True)
        if time.monotonic() - said > _SAID_S:
            said = time.monotonic()
            print(json.dumps({"counts": attacked.counts}), flush=True)
            attacked.counts.clear()
    print(json.dumps({"counts": attacked.counts, "end": True}), flush=True)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
