"""Processes that store trials of one study, each in its own store, all with one remote store.

``many DIR ADDRESS COUNT EACH``: COUNT processes store EACH trials at once. ``read DIR ADDRESS``: reads the trials in a
process with an empty store. Both print JSON. ``writers ADDRESS``: each line ``DIR FILE COUNT`` on standard input starts
a process that stores trials for ever, COUNT at a time, and writes to FILE which of them the remote store has; the
process id is printed, so that a test can kill the process.
"""

# pyright: reportOperatorIssue=false

import json
import os
import signal
import sys
from pathlib import Path

from fake_backend.measure import FakeEvaluator, FakeLandscape, fake_study
from silo.core.config import Config
from silo.store.remote.address import RemoteAddress
from silo.store.remote.client import RemoteClient
from silo.store.store import Store
from silo.tuner.ledger import Ledger, catch_up
from silo.tuner.winner import choose_winner

STUDY = fake_study("shared")
WAIT_S = 200


class Alike(FakeLandscape):
    """Many configs are nearly the fastest, so that every trial affects which one wins."""

    def time_ns(self, config):
        return 100_000 + config.as_dict()["BLOCK"] * 7919 % 3001


def machine(home, address):
    return Store(Path(home), RemoteClient(RemoteAddress.parse(address), writes=True))


def trial(number):
    config = Config.of(BLOCK=number, num_warps=4)
    return FakeEvaluator(STUDY, Alike(noise_permille=4)).evaluate(config)


def keep(home, address, first, each):
    store = machine(home, address)
    ledger = Ledger(STUDY, store.records)
    for number in range(first, first + each):
        ledger.keep([trial(number)])
    assert not ledger.notes, ledger.notes
    # a server written in Python, on two busy cores, stores a few hundred trials a second
    left = store.link.flush(max(WAIT_S, each))
    return left == 0 and not store.link.off


def read(home, address):
    store = machine(home, address)
    while catch_up(STUDY, store.records, follow=True):
        pass  # a call takes at most ten seconds, and reads the trials that arrive until then
    ledger = Ledger(STUDY, store.records)
    winner = choose_winner(ledger.trials)
    return {
        "trials": sorted(one.config.as_dict()["BLOCK"] for one in ledger.trials),
        "winner": str(winner.config) if winner else "",
        "notes": list(ledger.notes),
        "off": store.link.off,
    }


def many(folder, address, count, each):
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if keep(f"{folder}/home-{number}", address, 1 + number * each, each) else 2
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    looks = [read(f"{folder}/home-{number}", address) for number in (0, count - 1)]
    return {"codes": codes, "looks": [*looks, read(f"{folder}/fresh", address)]}


def acknowledge(home, address, out, each):
    store = machine(home, address)
    ledger = Ledger(STUDY, store.records)
    first = int.from_bytes(os.urandom(4), "little") << 16
    for number in range(first, first + 65536, each):
        some = range(number, number + each)
        for one in some:
            ledger.keep([trial(one)])
        if store.link.flush(WAIT_S) or store.link.off:
            return
        os.write(out, b"".join(b"%d\n" % one for one in some))


def writers(address):
    """Fork a writer for each line; it inherits everything imported here, so that a hundred writers start in seconds."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for these children
    for line in sys.stdin:
        home, path, each = line.split()
        out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        child = os.fork()
        if child == 0:
            try:
                acknowledge(home, address, out, int(each))
                os.write(out, b"end\n")
            finally:
                os._exit(0)
        os.close(out)
        print(child, flush=True)


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    if mode == "many":
        folder, address, *numbers = arguments
        print(json.dumps(many(folder, address, *map(int, numbers))))
    elif mode == "read":
        print(json.dumps(read(*arguments)))
    else:
        writers(*arguments)
