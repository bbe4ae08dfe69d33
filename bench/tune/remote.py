"""Tuning 64 configs with a remote store that answers after 50 ms, beside tuning without a remote store.

    python -m bench.tune.remote [--repeats 3] [--latency 0.05] [--cores N] [--json FILE]

Each sample is a ``silo tune`` of its own with an empty store: a kernel of 64 configs, compiled and measured on the CPU.
The remote store is a WebDAV server in a process of its own, which waits before each answer. Tunes without it, with it,
and with an address where nothing listens take turns. With ``--cores N`` a tune has N of this machine's cores and the
server has the others, as if it were another machine; without it they share all cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.machine import describe, save

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "samples"

BAR = 1.05  # limit of the time over that without a remote store

KERNEL = """
import silo
import triton
import triton.language as tl


@silo.kernel(
    space={"BLOCK": [64, 128, 256, 512, 1024, 2048, 4096, 8192], "K": [1, 2, 3, 4, 5, 6, 7, 8], "num_warps": [4]},
    key=["n"],
    grid=lambda a: (silo.cdiv(a.n, a.BLOCK),),
)
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr, K: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    total = value - value
    for _ in tl.static_range(K):
        total += value * (2.0 / K)
    tl.store(out + i, total, mask=i < n)


@scale.cases(n=[1 << 18])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 2})
"""

SERVER = """
import sys, time
from web_double import web_double

with web_double() as double:
    double.latency_s = float(sys.argv[1])
    print(double.address, flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Cores:
    """The cores of this machine that a tune runs on, and those of the server."""

    tune: frozenset[int]
    server: frozenset[int]

    @classmethod
    def split(cls, count: int | None) -> Cores:
        """Give all cores to both, or ``count`` to the tune and the rest to the server."""
        every = sorted(os.sched_getaffinity(0))
        if count is None:
            return cls(frozenset(every), frozenset(every))
        if not 0 < count < len(every):
            sys.exit(f"--cores {count}: there are {len(every)}, and the server needs one")
        return cls(frozenset(every[:count]), frozenset(every[count:]))


@contextmanager
def begun_on(cores: frozenset[int]) -> Generator[None]:
    """Processes that start inside the block run on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def server(latency_s: float, cores: frozenset[int]) -> Generator[str]:
    """Yield the address of a new, empty remote store."""
    environment = {**os.environ, "PYTHONPATH": str(SAMPLES)}
    command = [sys.executable, "-c", SERVER, str(latency_s)]
    with (
        begun_on(cores),
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


def tuned(path: Path, home: Path, remote: str, cores: frozenset[int]) -> tuple[float, int]:
    """Run one ``silo tune``; return its seconds and how many configs it measured."""
    environment = {**os.environ, "SILO_HOME": str(home), "SILO_REMOTE": remote}
    command = [sys.executable, "-m", "silo", "tune", str(path), "--json", "--searcher", "exhaustive"]
    begin = time.monotonic()
    with begun_on(cores):
        done = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    return time.monotonic() - begin, sum(row["measured"] for row in json.loads(done.stdout))


def main() -> int:
    """Run the command; return 1 if the bar fails."""
    parser = argparse.ArgumentParser(prog="python -m bench.tune.remote", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--latency", type=float, default=0.05, metavar="SECONDS")
    parser.add_argument("--cores", type=int, metavar="N")
    parser.add_argument("--json", metavar="FILE", type=Path)
    given = parser.parse_args()
    cores = Cores.split(given.cores)
    samples: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "kernels.py"
        path.write_text(KERNEL)
        for number in range(given.repeats):
            local_s, configs = tuned(path, folder / f"local-{number}", "", cores.tune)
            with server(given.latency, cores.server) as address:
                remote_s, same = tuned(path, folder / f"remote-{number}", address, cores.tune)
            down_s, others = tuned(path, folder / f"down-{number}", "http://127.0.0.1:9/", cores.tune)
            assert configs == same == others == 64, (configs, same, others)
            samples.append({"local_s": local_s, "remote_s": remote_s, "down_s": down_s})
            print(f"  without {local_s:.1f} s, with {remote_s:.1f} s, down {down_s:.1f} s")
    ratio = statistics.median(one["remote_s"] / one["local_s"] for one in samples)
    down = statistics.median(one["down_s"] - one["local_s"] for one in samples)
    print(
        f"a remote store with {given.latency * 1000:g} ms: {ratio:.3f} of the time without (at most {BAR}); "
        f"down: {down:+.2f} s"
    )
    if given.json is not None:
        told = {
            "latency_s": given.latency,
            "cores": given.cores,
            "ratio": ratio,
            "bar": BAR,
            "down_s": down,
            "samples": samples,
        }
        save(given.json, describe(), {**told, "samples": samples})
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
