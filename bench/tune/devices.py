"""A wide space measured on one GPU and on all of them: ``bench.tune.devices SIZE [DEVICE]``. Prints one JSON line.

Everything is compiled and the measuring processes have the arguments before the clock starts; how long they took to
start is reported beside it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Sequence

import numpy as np

import silo
from bench.tune import kernels
from silo.api.code.compilation import Compilation
from silo.api.kernels.kernel import kernel_of
from silo.api.machine.device_plugins import devices_named
from silo.api.machine.session import session
from silo.api.trials.evaluators import CompiledArtifacts, evaluators
from silo.api.tuning.case_tuning import case_benches, case_studies
from silo.core.cases import Make
from silo.core.config_set import ConfigSet
from silo.core.protocols import Device
from silo.errors import SiloError
from silo.store.store import MemoryStore
from silo.tune.session import tune
from silo.tune.terms import Scope, Search


def prepared(kernel, device: Device):
    """The case's study and its artifacts, all compiled; configs that do not compile fail again later, at once."""
    (study,) = case_studies(kernel, device)
    compilation = Compilation(session(), kernel.source)
    artifacts = CompiledArtifacts(compilation, lambda config: kernel.resolver.variant(study.situation, config))
    artifacts.prepare(study.situation.candidates)
    for config in study.situation.candidates:
        with contextlib.suppress(SiloError):
            artifacts.get(config)
    return study, artifacts


def measured(kernel, study, artifacts, devices: Sequence[Device]) -> dict[str, float]:
    """Seconds to start the processes, and then to measure every config."""
    situation = study.situation
    made = kernel.resolver.problem(situation).study(situation.specialization, study.bucket)
    benches = case_benches(study, devices[1:])
    begin = time.perf_counter()
    with evaluators(made, artifacts, benches, study.case.compare, situation.candidates) as lanes:
        lanes.prepare(())
        first = situation.candidates[: lanes.count]
        for config in first:  # copies the arguments, and loads a first kernel everywhere
            lanes.start(config)
        for _ in first:
            lanes.finish()
        started = time.perf_counter()
        outcome = tune(
            made,
            ConfigSet(situation.candidates),
            lanes,
            MemoryStore().records,
            Search("exhaustive"),
            Scope(finalists=0),
        )
        ended = time.perf_counter()
    return {"start_s": started - begin, "seconds": ended - started, "measured": outcome.measured}


def main(size: str, device: str = "cuda") -> None:
    """See the module."""
    extent = int(size)
    made = kernels.tuned_by_silo(kernels.WIDE if device == "cuda" else kernels.SMALL)

    @made.cases(extent=[extent])
    def _(extent: int, make: Make) -> silo.Case:
        left, right = (make.normal(extent, extent, dtype="float16") for _ in range(2))
        out = make.empty(extent, extent, dtype="float16")
        return silo.Case(
            args=(left, right, out, extent, extent, extent),
            expected={"c": lambda: left.host.astype(np.float32) @ right.host.astype(np.float32)},
            rtol=2e-2,
            atol=extent**0.5 / 8,
        )

    devices = devices_named(device)
    kernel = kernel_of(made)
    study, artifacts = prepared(kernel, devices[0])
    one = measured(kernel, study, artifacts, devices[:1])
    every = measured(kernel, study, artifacts, devices)
    print(
        json.dumps(
            {
                "count": len(devices),
                "configs": len(study.situation.candidates),
                "one_s": one["seconds"],
                "all_s": every["seconds"],
                "one_start_s": one["start_s"],
                "all_start_s": every["start_s"],
                "measured": every["measured"],
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
