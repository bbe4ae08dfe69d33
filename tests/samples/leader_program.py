"""Runs of eight processes that must agree on a decision although each measures random times; prints counts of the runs.

``leader_program.py RUNS FOLDER``. The processes are forked from this one, which has imported everything. Each has a
store of its own, which has the code of every config.
"""

# pyright: reportAttributeAccessIssue=false, reportPrivateUsage=false

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import triton
import triton.language as tl

import silo
from silo.measuring import benches
from silo.settings import override
from silo.tuner.measure import Timing

RANKS = 8


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


class Noise(benches.LocalBench):
    """Runs and checks configs in this process, but returns random times."""

    on_measure = staticmethod(lambda: None)

    def measure(self, config, artifact, best_ns, beside=None):
        Noise.on_measure()
        taken = [
            tuple(int(random.gauss(middle, 5)) for _ in range(9))
            for middle in (random.uniform(900, 1100), random.uniform(900, 1100))
        ]
        return Timing(taken[0], () if beside is None else taken[1])

    def compare(self, artifacts):
        return {config: self.measure(config, artifact, None).samples for config, artifact in artifacts.items()}


def call(mode, home, lock):
    """Make a first call; return the digest of the process's decisions."""
    with override(tune=mode, home=home, lock=lock, jobs=1, tune_budget_s=30.0):
        kernel = silo.kernel(space={"BLOCK": [64, 128, 256, 512]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
        x = np.arange(5000, dtype=np.float32)
        out = np.empty_like(x)
        kernel(scale)(x, out, x.size)
        assert (out == 2 * x).all()
        return silo.decisions().digest.hex()


def forked(step):
    """Run ``step(write)`` in a forked child; return its process id and a pipe with the lines that it writes."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(ours)
            step(lambda text: os.write(theirs, f"{text}\n".encode()))
            code = 0
        finally:
            os._exit(code)
    os.close(theirs)
    return child, os.fdopen(ours)


def run(number, folder, mode, *, killing):
    """Make one run; return the decision digests of the processes that lived.

    If ``killing``, a measuring process is killed.
    """
    place = folder / f"run-{number}-{mode}"
    lock = None if mode == "auto" else place / "lock.json"
    place.mkdir()

    def rank(own):
        shutil.copytree(folder / "code", place / f"store-{own}")

        def step(write):
            random.seed(1000 * number + own)
            if killing:
                Noise.on_measure = staticmethod(lambda: (write("measures"), time.sleep(0.05)))
            write(call(mode, place / f"store-{own}", lock))

        return forked(step)

    ranks = [rank(own) for own in range(RANKS)]
    killed = None
    if killing:
        while killed is None:
            for child, pipe in ranks:
                os.set_blocking(pipe.fileno(), False)
                if pipe.readline() == "measures\n":
                    os.kill(child, signal.SIGKILL)
                    killed = child
                    break
            time.sleep(0.002)
    digests = []
    for child, pipe in ranks:
        os.set_blocking(pipe.fileno(), True)
        lines = pipe.read().splitlines()
        _, status = os.waitpid(child, 0)
        if child != killed:
            assert status == 0, f"a process ended with {status}"
            digests.append(next(line for line in lines if line != "measures"))
    shutil.rmtree(place)
    return digests


def main():
    runs, folder = int(sys.argv[1]), Path(sys.argv[2])
    benches.confines = lambda *_, **__: False
    benches.LocalBench = Noise
    from silo.calls import first_call

    if hasattr(first_call, "LocalBench"):
        first_call.LocalBench = Noise
    child, pipe = forked(lambda write: write(call("auto", folder / "code", None)))
    pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    shutil.rmtree(folder / "code" / "records", ignore_errors=True)
    told = {"runs": runs, "alone": 0, "agreed": 0, "agreed_killed": 0}
    for number in range(runs):
        told["alone"] += len(set(run(number, folder, "auto", killing=False))) > 1 if number < 5 else 0
        told["agreed"] += len(set(run(number, folder, "leader", killing=False))) == 1
        digests = run(runs + number, folder, "leader", killing=True)
        told["agreed_killed"] += len(digests) == RANKS - 1 and len(set(digests)) == 1
        print(f"after {number + 1} runs: {told}", file=sys.stderr, flush=True)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
