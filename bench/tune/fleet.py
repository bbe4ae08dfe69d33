"""Tuning on several agents beside one agent, with a made-up device whose configs take 50 ms each.

    python -m bench.tune.fleet [--agents 4] [--repeats 5] [--ray] [--json FILE]

An agent sleeps 50 ms for each of 64 configs, so that the number of cores does not matter, and answers with a made-up
time. Sessions on one agent and on several take turns; agents are started before the clock. With ``--ray`` the agents
are actors of a cluster on this machine that pretends to have GPUs; otherwise processes on pipes. All sessions must find
the same winner.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.machine import describe, save

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "samples"), str(ROOT / "tests")]

BAR = 2.4  # least gain of four agents over one
PAUSE_S = 0.05


def on_pipes(agents: int, repeats: int) -> list[dict[str, Any]]:
    """Run sessions on one agent and on all agents in turns; return the seconds and the winners of each."""
    import fleets  # a module of tests/samples
    from silo.store.store import MemoryStore
    from tuning_samples import tune

    def session(fleet: Any) -> tuple[float, str]:
        with fleets.lanes_of(fleet) as lanes:
            begin = time.monotonic()
            outcome = tune(fleets.STUDY, fleets.CONFIGS, lanes, MemoryStore().records, searcher="exhaustive")
            return time.monotonic() - begin, str(outcome.winner.config if outcome.winner else None)

    here = tune(fleets.STUDY, fleets.CONFIGS, fleets.Here(), MemoryStore().records, searcher="exhaustive")
    local = str(here.winner.config if here.winner else None)
    told: list[dict[str, Any]] = []
    with (
        fleets.fleet("", pause_s=PAUSE_S) as one,
        fleets.fleet(*[""] * agents, pause_s=PAUSE_S) as several,
    ):
        for _ in range(repeats):
            (one_s, first), (all_s, second) = session(one), session(several)
            told.append({"one_s": one_s, "all_s": all_s, "winners": [local, first, second]})
    return told


def on_ray(agents: int, repeats: int) -> list[dict[str, Any]]:
    """Run the sessions with Ray's actors, in a process and a cluster for each repeat."""
    told: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT / "src"), *sys.path[:2], os.environ.get("PYTHONPATH", "")]
        )
        program = [sys.executable, str(ROOT / "tests" / "samples" / "ray_program.py"), "compare", str(agents)]
        done = subprocess.run([*program, str(repeats)], env=environment, check=True, stdout=subprocess.PIPE, text=True)
        told += json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> int:
    """Run the command; return 1 if the bar fails."""
    parser = argparse.ArgumentParser(prog="python -m bench.tune.fleet", description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ray", action="store_true", help="actors of Ray, which must be installed")
    parser.add_argument("--json", metavar="FILE", type=Path)
    given = parser.parse_args()
    samples = (on_ray if given.ray else on_pipes)(given.agents, given.repeats)
    ratio = statistics.median(one["one_s"] / one["all_s"] for one in samples)
    equal = len({winner for one in samples for winner in one["winners"]}) == 1
    kind = "actors of Ray" if given.ray else "agents on pipes"
    bar = BAR * given.agents / 4
    print(
        f"{given.agents} {kind}: {ratio:.2f} times one (at least {bar:.2f}); winners {'equal' if equal else 'DIFFER'}"
    )
    if given.json is not None:
        save(
            given.json,
            describe(),
            {"kind": kind, "agents": given.agents, "ratio": ratio, "bar": bar, "samples": samples},
        )
    return 0 if ratio >= bar and equal else 1


if __name__ == "__main__":
    sys.exit(main())
