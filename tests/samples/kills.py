"""Sessions on a fleet of made-up agents that are killed at random."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import os
import random
import signal
import threading
import time

import fleets
from silo.core.config import Config
from silo.store.store import MemoryStore
from tuning_samples import tune


def kill_process(seat):
    """Kill an agent's process by SIGKILL, SIGTERM or SIGSEGV."""
    process = seat.connection._process
    os.kill(process.pid, random.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV]))


def kill_actor(ray, seat):
    """Kill an actor through Ray, or kill the actor's process."""
    actor = seat.connection._actor
    try:
        if random.random() < 0.5:
            ray.kill(actor)
        else:
            os.kill(ray.get(actor.pid.remote(), timeout=5), signal.SIGKILL)
    except ray.exceptions.RayError as error:
        raise RuntimeError("it is gone already") from error


def sessions(fleet, kills, kill):
    """Run sessions until ``kills`` agents were killed; return the numbers of sessions, lost configs, wrong winners."""
    chance, told = random.Random(5), {"kills": 0, "sessions": 0, "lost": 0, "wrong": 0, "longest_s": 0.0}
    done, hit = threading.Event(), set()
    ask, lose = fleet.ask, fleet._lose

    def asked(*arguments):
        try:
            return ask(*arguments)
        finally:
            hit.discard(threading.get_ident())

    def lost(*arguments):
        hit.add(threading.get_ident())  # this thread's config is now tried on another agent
        lose(*arguments)

    fleet.ask, fleet._lose = asked, lost

    def killer():
        while told["kills"] < kills and not done.is_set():
            time.sleep(chance.uniform(0.05, 0.35))
            if hit:
                continue  # wait, because a config whose second agent dies too is left out on purpose
            there = [seat for seat in fleet._seats if seat.connection is not None]
            if sum(not seat.given_up for seat in fleet._seats) < 2:
                return
            if len(there) < 2:
                continue  # keep one agent, so that some agent works when the next one is killed
            try:
                kill(chance.choice(there))
            except (AttributeError, OSError, RuntimeError, ValueError):
                continue  # the agent is gone already
            told["kills"] += 1

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        while thread.is_alive():
            begin = time.monotonic()
            with fleets.lanes_of(fleet) as lanes:
                outcome = tune(fleets.STUDY, fleets.CONFIGS, lanes, MemoryStore().records, searcher="exhaustive")
            told["sessions"] += 1
            told["lost"] += len(fleets.CONFIGS) - outcome.measured
            told["wrong"] += outcome.winner.config != Config.of(x=5, y=2)
            told["longest_s"] = max(told["longest_s"], time.monotonic() - begin)
    finally:
        done.set()
        thread.join()
    told["given_up"] = sum(bool(seat.given_up) for seat in fleet._seats)
    return told
