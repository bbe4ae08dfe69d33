"""Sessions on a fleet of made-up agents that somebody kills at random."""

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
    """SIGKILL, or SIGTERM, or its standard input closed: a network that breaks."""
    process = seat.connection._process
    os.kill(process.pid, random.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV]))


def kill_actor(ray, seat):
    """By Ray, or the process that the actor is."""
    actor = seat.connection._actor
    try:
        if random.random() < 0.5:
            ray.kill(actor)
        else:
            os.kill(ray.get(actor.pid.remote(), timeout=5), signal.SIGKILL)
    except ray.exceptions.RayError as error:
        raise RuntimeError("it is gone already") from error


def sessions(fleet, kills, kill):
    """Sessions one after the other until so many agents were killed: of each, what was measured and how it ended."""
    chance, told = random.Random(5), {"kills": 0, "sessions": 0, "lost": 0, "wrong": 0, "longest_s": 0.0}
    done, hit = threading.Event(), set()
    ask, lose = fleet.ask, fleet._lose

    def asked(*arguments):
        try:
            return ask(*arguments)
        finally:
            hit.discard(threading.get_ident())

    def lost(*arguments):
        hit.add(threading.get_ident())  # this thread's config is tried on another agent now
        lose(*arguments)

    fleet.ask, fleet._lose = asked, lost

    def killer():
        while told["kills"] < kills and not done.is_set():
            time.sleep(chance.uniform(0.05, 0.35))
            if hit:
                continue  # a config that is hit on its second agent too is left out, as it should be
            there = [seat for seat in fleet._seats if seat.connection is not None]
            if sum(not seat.given_up for seat in fleet._seats) < 2:
                return
            if len(there) < 2:
                continue  # one stays, so that somebody is at work when the next is hit
            try:
                kill(chance.choice(there))
            except (AttributeError, OSError, RuntimeError, ValueError):
                continue  # it is gone already
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
