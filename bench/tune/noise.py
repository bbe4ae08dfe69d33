"""Winners under load: a space of 207 CPU configs is tuned beside four busy processes on two cores.

    python -m bench.tune.noise [--runs 20] [--baseline CHECKOUT] [--keep-code] [--keep-trials FOLDER] [--seconds 400]
                               [--json FILE]

Every pair of cores except the last has four busy loops pinned to it, and tunes ``noise_space.py`` again and again, each
time with an empty store. ``--baseline`` names a checkout whose native modules are built: each pair first tunes with
that checkout, and the times of its other tunings are compared with that one. At the end the load stops. The last pair,
which was idle, then measures all configs, and compares each winner with the fastest of the ten fastest configs in 200
interleaved pairs. On a machine of two or three cores the loaded pair does that.

With ``--keep-code``, all tunings of a pair but the first find the compiled code in the store and no trials, so they
only measure; only the time of the first one counts. After ``--seconds`` no tuning begins. It needs ``taskset``. Sixteen
cores take about seven minutes with empty stores, two cores 15 with kept code.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine import describe, save

ROOT = Path(__file__).resolve().parents[2]
SPACE = ROOT / "bench" / "tune" / "noise_space.py"

LOAD = 4  # busy processes on each pair of cores
TEN = 10
PAIRS = 200
WINNER_BAR = 1.03  # limit of a winner's time over the best of the ten fastest
TIME_BAR = 1.3  # limit of a tuning's time over the baseline's


def pinned(cores: Sequence[int], command: Sequence[str]) -> list[str]:
    """Return the command pinned to these cores."""
    return ["taskset", "-c", ",".join(map(str, cores)), *command]


def environment(checkout: Path, home: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a process that imports Silo from ``checkout`` and keeps all its files in ``home``."""
    path = os.pathsep.join([str(checkout / "src"), str(ROOT)])
    folders = {"SILO_HOME": str(home / "silo"), "TRITON_CACHE_DIR": str(home / "triton")}
    return {**os.environ, "PYTHONPATH": path, **folders, **variables}


class Load:
    """Runs busy processes on some cores while the block runs."""

    def __init__(self, cores: Sequence[int]) -> None:
        self._command = pinned(cores, [sys.executable, "-S", "-c", "while True: pass"])
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> None:
        self._processes = [subprocess.Popen(self._command) for _ in range(LOAD)]

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Tuned:
    """The result of one tuning: seconds, the winner as text, whether the baseline made it, whether it compiled."""

    seconds: float
    winner: str
    baseline: bool
    compiled: bool
    cores: tuple[int, ...]


def tuned(checkout: Path, home: Path, cores: Sequence[int], *, baseline: bool) -> Tuned:
    """Tune the space once with the store in ``home``, which has no trials."""
    compiled = not (home / "silo" / "artifacts").exists()
    command = [sys.executable, "-m", "silo", "tune", str(SPACE), "--searcher", "exhaustive", "--json"]
    begin = time.monotonic()
    done = subprocess.run(
        pinned(cores, command), env=environment(checkout, home), cwd=home, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - begin
    if done.returncode:
        raise SystemExit(f"tuning with {checkout}: exit {done.returncode}: {done.stderr.strip()[-2000:]}")
    (row,) = json.loads(done.stdout)
    return Tuned(seconds, row["winner"], baseline, compiled, tuple(cores))


class Queue:
    """The number of tunings that are left, shared by threads that each have a pair of cores."""

    def __init__(self, runs: int, until: float) -> None:
        self._left = list(range(runs))
        self._until = until

    def take(self) -> bool:
        """Take one tuning from the queue; return whether there was one."""
        if not self._left or time.monotonic() >= self._until:
            return False
        self._left.pop()
        return True


@dataclass(frozen=True)
class Series:
    """The settings of all tunings: the baseline's checkout, the stores' folder, whether a pair keeps its code."""

    queue: Queue
    baseline: Path | None
    folder: Path
    keep_code: bool
    trials: Path | None

    def home(self, cores: Sequence[int], number: int) -> Path:
        """Return the folder of a pair's store for the tuning of this number (0 is the baseline's)."""
        return self.folder / f"{cores[0]}-{min(number, 1) if self.keep_code else number}"


def on_pair(cores: Sequence[int], series: Series) -> list[Tuned]:
    """Make tunings on one pair of cores, one after the other, until the queue is empty."""
    found: list[Tuned] = []

    def one(checkout: Path, number: int) -> None:
        home = series.home(cores, number)
        home.mkdir(exist_ok=True)
        shutil.rmtree(home / "silo" / "records", ignore_errors=True)
        done = tuned(checkout, home, cores, baseline=number == 0)
        found.append(done)
        if series.trials is not None:
            shutil.copytree(home / "silo" / "records", series.trials / f"{cores[0]}-{number}")
        print(f"{done.seconds:6.1f} s on cores {cores}: {done.winner}", file=sys.stderr)

    with Load(cores):
        if series.baseline is not None:
            one(series.baseline, 0)
        number = 1
        while series.queue.take():
            one(ROOT, number)
            number += 1
    return found


def members(text: str) -> dict[str, int]:
    """Return the members of a config from its text, such as ``BH=8, BW=256``."""
    return {name: int(value) for name, value in (part.split("=") for part in text.split(", "))}


def compared(winners: Sequence[str], rounds: int = 9) -> dict[str, Any]:
    """Measure in this process: return the ten fastest configs, and each winner's time over the best one's."""
    import numpy as np

    from bench.tune.noise_space import SHAPE, K, conv
    from silo.core.protocols import WatchfulTimer
    from silo.machine.device_plugins import device_named
    from silo.tuner.measure import Contender, MeasurePolicy, interleave
    from silo.tuner.statistics import median

    chance = np.random.default_rng(1)
    x = chance.standard_normal((SHAPE[0] + K - 1, SHAPE[1] + K - 1), dtype=np.float32)
    f, out = chance.standard_normal((K, K), dtype=np.float32), np.empty(SHAPE, np.float32)
    device = device_named("cpu")
    timer, policy = device.timer(), MeasurePolicy.of(device.timing)
    if isinstance(timer, WatchfulTimer):
        timer.settle()

    def contender(text: str) -> Contender:
        chosen = members(text)
        return Contender(lambda: conv(x, f, out, *SHAPE, K, **chosen))

    configs = [str(config) for config in conv.kernel.space.configs()]
    taken = interleave({text: contender(text) for text in configs}, timer, policy, rounds=rounds)
    ten = sorted(configs, key=lambda text: median(taken[text]))[:TEN]
    side = interleave({text: contender(text) for text in ten}, timer, policy, rounds=PAIRS)
    best = min(ten, key=lambda text: median(side[text]))
    quotients: dict[str, float] = {}
    for text in dict.fromkeys(winners):
        if text == best:
            quotients[text] = 1.0
            continue
        pair = interleave({text: contender(text), best: contender(best)}, timer, policy, rounds=PAIRS)
        quotients[text] = statistics.median(one / two for one, two in zip(pair[text], pair[best], strict=True))
    times = {text: median(side[text]) for text in ten}
    return {"best": best, "ten_ns": times, "quotients": quotients}


def judged(winners: Sequence[str], cores: Sequence[int], home: Path) -> dict[str, Any]:
    """Run :func:`compared` in a process on idle cores."""
    command = pinned(cores, [sys.executable, "-m", "bench.tune.noise", "--compare"])
    variables = environment(ROOT, home, SILO_TUNE="off")
    text = json.dumps(list(winners))
    done = subprocess.run(command, env=variables, cwd=ROOT, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"comparing: exit {done.returncode}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def ratios(runs: Sequence[Tuned]) -> list[float]:
    """Return the time of each tuning with an empty store over the baseline's time on the same cores.

    The list is empty without a baseline.
    """
    base = {one.cores: one.seconds for one in runs if one.baseline}
    return [one.seconds / base[one.cores] for one in runs if not one.baseline and one.compiled and one.cores in base]


def show(results: Mapping[str, Any]) -> bool:
    """Print the results; return whether the bars hold."""
    quotients, good = results["compared"]["quotients"], True
    print(f"the best of the ten fastest: {results['compared']['best']}")
    for name, baseline in (("this checkout", False), ("the baseline", True)):
        runs = [one for one in results["runs"] if one["baseline"] is baseline]
        if not runs:
            continue
        behind = [quotients[one["winner"]] for one in runs]
        within = sum(one <= WINNER_BAR for one in behind)
        seconds = statistics.median(one["seconds"] for one in runs if one.get("compiled", True))
        print(
            f"{name}: {within} of {len(runs)} winners within {WINNER_BAR:.2f} of it, the worst at {max(behind):.3f}, "
            f"{len({one['winner'] for one in runs})} different ones; {seconds:.1f} s a tuning"
        )
        good = good and (baseline or within == len(runs))
    if results["ratios"]:
        ratio = statistics.median(results["ratios"])
        print(f"time, of the baseline's on the same cores: {ratio:.3f} (at most {TIME_BAR}); {results['ratios']}")
        good = good and ratio <= TIME_BAR
    print("pass" if good else "FAIL")
    return good


def main() -> int:
    """Run the command; return 1 if a bar fails."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tune.noise", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--baseline", type=Path, metavar="CHECKOUT", help="a built checkout to compare the time with")
    parser.add_argument("--keep-code", action="store_true", help="compile once for each pair of cores")
    parser.add_argument("--keep-trials", type=Path, metavar="FOLDER", help="copy the records of each tuning here")
    parser.add_argument("--seconds", type=float, default=400, help="after so many no tuning begins")
    parser.add_argument("--cores", type=int, help="how many to use; all by default")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--compare", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.compare:
        print(json.dumps(compared(json.load(sys.stdin))))
        return 0
    cores = sorted(os.sched_getaffinity(0))[: given.cores]
    if len(cores) < 2:
        raise SystemExit("it needs two cores at least; here is one")
    pairs = [tuple(cores[place : place + 2]) for place in range(0, len(cores) - 1, 2)]
    loaded = pairs[:-1] or pairs
    queue = Queue(given.runs, time.monotonic() + given.seconds)
    baseline = None if given.baseline is None else given.baseline.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        series = Series(queue, baseline, folder, given.keep_code, given.keep_trials)
        with ThreadPoolExecutor(len(loaded)) as threads:
            jobs = [threads.submit(on_pair, pair, series) for pair in loaded]
            runs = [one for job in jobs for one in job.result()]
        mine = next(one for one in runs if not one.baseline)
        found = judged([one.winner for one in runs], pairs[-1], series.home(mine.cores, 1))
    results = {"runs": [vars(one) for one in runs], "ratios": ratios(runs), "compared": found}
    good = show(results)
    if given.json:
        save(given.json, describe(), results)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
