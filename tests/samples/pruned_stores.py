"""Stores of tuned kernels that tests prune.

``HOME FIRST KERNELS CONFIGS`` stores kernels and prunes after each. With a fifth argument, a limit in bytes, the store
prunes itself as it does during a session.
"""

import json
import os
import sys
import time
from pathlib import Path

from bundle_samples import variant
from fake_backend.measure import fake_study
from silo.artifacts.artifact import Artifact
from silo.core.launch_info import LaunchInfo
from silo.core.variant import Compiled, CompiledBlob
from silo.settings import override
from silo.store import usage
from silo.store.store import Store
from silo.store.upkeep import losing_artifacts
from silo.store.usage import PruneRule, prune
from silo.tuner.ledger import Ledger
from silo.tuner.trial import Status

_COMPILER = "made-up 1.0"


def code_of(kernel, number, size=300):
    return f"{kernel} {number} ".encode() * (size // 10)


def key_of(kernel, number):
    return variant(kernel, number, "cuda:sm_90").artifact_key(_COMPILER)


def keep_config(store, ledger, kernel, number, size=300):
    """Store one config as a session does: its code, and a trial. Config 0 is the fastest."""
    item = variant(kernel, number, "cuda:sm_90")
    job = key_of(f"job of {kernel}", number)
    blobs = CompiledBlob("cubin", code_of(kernel, number, size)), (CompiledBlob("ttir", b"text " + kernel.encode()),)
    outcome = store.artifacts.put_compiled(job, Compiled(LaunchInfo("f", ()), *blobs))
    store.artifacts.put(
        key_of(kernel, number), Artifact(item, outcome.launch, outcome.blob, outcome.sidecars, _COMPILER, job)
    )
    samples = [1000 * (1 + number)] * 9
    ledger.keep([ledger_study(kernel).trial(item.config, Status.OK, samples, artifact=key_of(kernel, number))])


def ledger_study(kernel):
    return fake_study(kernel)


def keep_kernel(store, kernel, configs, size=300):
    ledger = Ledger(ledger_study(kernel), store.records)
    for number in range(configs):
        keep_config(store, ledger, kernel, number, size)
    assert not ledger.notes, ledger.notes


def age(root, seconds):
    for folder, _, files in os.walk(root):
        for name in files:
            if not name.startswith(".silo-tmp-"):
                try:
                    os.utime(Path(folder, name), (time.time() - seconds, time.time() - seconds))
                except FileNotFoundError:
                    continue


def keep_below(store, limit, first, kernels, configs):
    """Store kernels in a self-pruning store; its limit is so small that losing configs lose their code at once."""
    os.fsync = lambda _: None  # skipped, because no machine fails here
    usage.LOSERS_GRACE_S = 0
    with override(store_bytes=limit):
        for number in range(first, first + kernels):
            keep_kernel(store, f"kernel_{number}", configs, size=6000)
        store.tidy()


def main():
    home, (first, kernels, configs, *limit) = Path(sys.argv[1]), map(int, sys.argv[2:])
    store = Store(home)
    if limit:
        keep_below(store, limit[0], first, kernels, configs)
        return
    for number in range(first, first + kernels):
        keep_kernel(store, f"kernel_{number}", configs)
        # without the grace period of a minute, so that a process may lose code that it has just stored
        prune(home, PruneRule(losers=losing_artifacts(store.records), losers_alone=True), grace_s=0)
    print(json.dumps(sorted(store.records.keys())))


if __name__ == "__main__":
    main()
