"""One process with its own Ray cluster that pretends to have GPUs: does the work of its argument, and prints JSON."""

# pyright: reportAttributeAccessIssue=false, reportMissingImports=false

import json
import sys
import time
from pathlib import Path

import fleets
import kills
from ray_landscape import LandscapeActor
from silo.errors import DeviceError
from silo.store.store import MemoryStore
from silo.tuning.agents import fleet as agents
from silo.tuning.agents.ray_agents import ray_fleet
from tuning_samples import tune


def found(fleet):
    """Run a session on a fleet; return its winner, counts and seconds."""
    with fleets.lanes_of(fleet) as lanes:
        begin = time.monotonic()
        outcome = tune(fleets.STUDY, fleets.CONFIGS, lanes, MemoryStore().records, searcher="exhaustive")
        seconds = time.monotonic() - begin
    return {
        "winner": str(outcome.winner.config),
        "measured": outcome.measured,
        "faults": len(outcome.faults),
        "seconds": seconds,
    }


def own_cluster(ray):
    """Let a fleet start a cluster; return an actor's late answer, and whether the cluster is gone afterwards."""
    connected = ray.init

    def with_gpus(**options):
        return connected(num_gpus=1, num_cpus=2, include_dashboard=False, **options)

    ray.init = with_gpus
    with ray_fleet("local", 1, device="0.05", actor=LandscapeActor, wait_s=120) as fleet:
        time.sleep(2)  # Ray's servers would end with the thread that connected, if that thread had ended
        told = found(fleet) | {"answer": ray.get(ray.remote(num_cpus=0)(lambda: 6 * 7).remote(), timeout=60)}
    return told | {"connected": ray.is_initialized()}


def main():
    """Run ``ray_program.py local|tune|kill|full|no-gpu|tuned ...``."""
    import ray

    what, *more = sys.argv[1:]
    if what == "local":
        print(json.dumps(own_cluster(ray)))
        return
    ray.init(num_gpus=0 if what == "no-gpu" else 4, num_cpus=4, log_to_driver=False, include_dashboard=False)
    match what:
        case "tune":
            with ray_fleet("auto", int(more[0]), device="0.05", actor=LandscapeActor, wait_s=120) as fleet:
                found(fleet)  # imports everything and warms up
                told = found(fleet)
        case "compare":
            told = []
            for _ in range(int(more[1])):
                turn = {}
                for name, count in (("one_s", 1), ("all_s", int(more[0]))):
                    with ray_fleet("auto", count, device="0.05", actor=LandscapeActor, wait_s=120) as fleet:
                        found(fleet)
                        session = found(fleet)
                    turn[name] = session["seconds"]
                    turn.setdefault("winners", []).append(session["winner"])
                told.append(turn)
        case "kill":
            agents._MOST_FRUITLESS = 1000  # by default an agent that is killed three times in a row is given up
            with ray_fleet("auto", 4, device="0.05", actor=LandscapeActor, wait_s=120) as fleet:
                told = kills.sessions(fleet, int(more[0]), lambda seat: kills.kill_actor(ray, seat))
        case "full":
            told = {}
            try:
                with ray_fleet("auto", 5, device="0", actor=LandscapeActor, wait_s=15):
                    pass
            except DeviceError as error:
                told = {"error": str(error)}
        case "no-gpu":
            told = {}
            try:
                with ray_fleet("auto"):
                    pass
            except DeviceError as error:
                told = {"error": str(error)}
        case _:
            from silo.commands.tune_cases import tune_path

            try:
                with ray_fleet("auto", 2, device=more[1] or None, wait_s=120) as fleet:
                    rows = tune_path(Path(more[0]), fleet=fleet)
                told = {"measured": [row.measured for row in rows], "failures": [dict(row.failures) for row in rows]}
            except DeviceError as error:
                told = {"error": str(error)}
    print(json.dumps(told))
    ray.shutdown()


if __name__ == "__main__":
    main()
