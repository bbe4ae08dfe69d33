"""Processes that tune on one store; run as a program, so that they start from a small, single-threaded parent.

``many DIR COUNT``: COUNT processes tune the same kernel at once.
``kill DIR SEED COUNT``: tunes are killed COUNT times at random moments, and updates of a lock file a few times.
Prints one JSON object on standard output.
"""

import json
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.core.config import Config, ConfigSet
from silo.measuring.lock_files import read_lock, update_lock
from silo.store.store import MemoryStore, Store
from silo.tuner.session import tune
from silo.tuner.session_values import SearchOptions, SessionWatch

SPACE = [Config.of(BLOCK=block, num_warps=warps) for block in range(16, 16 * 1001, 16) for warps in (2, 4, 8)]
WIDE = SPACE[:120]
NARROW = SPACE[:8]


def killed(count):
    """What is tuned, and how often that is killed: one large space most of the time, many small ones once each."""
    small = count // 5
    # About four configs are measured between two kills; there are enough that the large space is never done.
    return {f"vast-{15 * (count - small)}": count - small, **{f"narrow-{number}": 1 for number in range(small)}}


class Alike(FakeLandscape):
    """Configs that differ by less than a finalist's margin, so that the finalists are compared."""

    def time_ns(self, config):
        return 100_000 + super().time_ns(config) % 3000


class Slow(FakeEvaluator):
    """Comparing takes a while, so that a kill can hit it."""

    def compare(self, configs):
        time.sleep(0.02)
        return super().compare(configs)


def problem(kind):
    """Study, space and landscape, which are the same in every process."""
    if kind.startswith("narrow"):
        return fake_study(kind), NARROW, Alike(noise_permille=4)
    space = WIDE if kind == "wide" else SPACE[: int(kind.partition("-")[2])]
    return fake_study(kind), space, Alike(noise_permille=4, failing_permille=200)


def work(directory, kind, delay_s, finished):
    """One tuning process; ``finished`` is a pipe that hears of each config it measured once the trial is kept."""
    study, space, landscape = problem(kind)
    measured = 0

    def report(progress):
        nonlocal measured
        if progress.done - progress.reused > measured:
            measured += 1
            os.write(finished, b"%d\n" % space.index(progress.last.config))

    evaluator = Slow(study, landscape, delay_s=delay_s)
    outcome = tune(
        study,
        ConfigSet(space),
        evaluator,
        Store(directory).records,
        SearchOptions("exhaustive"),
        watch=SessionWatch(report),
    )
    return outcome, evaluator


def start(directory, kind, delay_s):
    """Fork a tuning process; its id and the pipe's other end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    code = 1
    try:
        os.close(reader)
        outcome, _ = work(directory, kind, delay_s, writer)
        os.write(writer, b"winner %d\n" % problem(kind)[1].index(outcome.require_winner().config))
        code = 0
    finally:
        os._exit(code)


def hear(reader, lines):
    """What a child says until it has said so many lines, or ended."""
    heard = b""
    while heard.count(b"\n") < lines and (more := os.read(reader, 1)):
        heard += more
    return heard


def finish(child, reader, heard=b""):
    """Wait; the exit status, the configs reported as kept, the winner if there was time for one."""
    with os.fdopen(reader, "rb") as pipe:
        lines = (heard + pipe.read()).decode().split("\n")[:-1]  # a line without end was cut by the kill
    _, status = os.waitpid(child, 0)
    winners = [int(line.removeprefix("winner ")) for line in lines if line.startswith("winner")]
    return os.waitstatus_to_exitcode(status), [int(line) for line in lines if line[0].isdigit()], winners


def many(directory, count):
    """Tune in ``count`` processes at once."""
    results = [finish(*child) for child in [start(directory, "wide", 0.001) for _ in range(count)]]
    return {"codes": [code for code, _, _ in results], "winners": [winner for _, _, winner in results]}


def kill(directory, seed, count):
    """Kill tunes ``count`` times, those of small spaces when they reach the comparison of finalists."""
    chance = random.Random(seed)
    plan = killed(count)
    kept = {kind: [] for kind in plan}
    codes = []
    for kind, times in plan.items():
        for _ in range(times):
            child, reader = start(directory, kind, 0.002)
            # Progress and not the clock says when, so that a busy machine tests as much as an idle one.
            heard = hear(reader, chance.randint(0, 8))
            time.sleep(chance.uniform(0.0, 0.03 if heard.count(b"\n") == len(NARROW) else 0.006))
            os.kill(child, signal.SIGKILL)
            code, reported, _ = finish(child, reader, heard)
            codes.append(code)
            kept[kind].extend(reported)
    locked = [kill_lock(directory / f"{number}.lock.json", chance) for number in range(max(5, count // 10))]
    return {"codes": codes, "kept": {kind: sorted(set(numbers)) for kind, numbers in kept.items()}, "locked": locked}


def kill_lock(path, chance):
    """Kill a process that updates a lock file without end; the last update it reported, and the last in the file."""
    study, space, landscape = problem("narrow-lock")
    outcome = tune(
        study, ConfigSet(space), FakeEvaluator(study, landscape), MemoryStore().records, SearchOptions("exhaustive")
    )
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        number = 0
        while True:
            number += 1
            trials = tuple(replace(trial, bucket=(number,)) for trial in outcome.trials)
            update_lock(path, [replace(outcome, study=replace(study, bucket=(number,)), trials=trials)])
            os.write(writer, b"%d\n" % number)
    os.close(writer)
    heard = hear(reader, chance.randint(1, 4))
    time.sleep(chance.uniform(0.0, 0.01))
    os.kill(child, signal.SIGKILL)
    _, reported, _ = finish(child, reader, heard)
    entries = read_lock(path).entries
    return max(reported), max(entry.study.bucket[0] for entry in entries)


if __name__ == "__main__":
    mode, place, *numbers = sys.argv[1:]
    print(json.dumps({"many": many, "kill": kill}[mode](Path(place), *map(int, numbers))))
