"""A large space measured on one GPU and on all of them: ``bench.tune.devices SIZE [CONFIGS [DEVICE]]``.

Prints one line of JSON. The space is measured twice: by measuring processes that this process starts, and by agents on
pipes (``silo agent``), one for each GPU. CONFIGS is the number of configs to measure, evenly chosen; all by default.
Everything is compiled and the measuring processes have the arguments before the clock starts; the time that they took
to start is reported beside it.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np

import silo
from bench.tune import kernels
from silo.building.compilation import Compilation
from silo.building.loaded_kernels import stored_code
from silo.core.cases import Make
from silo.core.config import ConfigSet
from silo.core.protocols import Device
from silo.errors import SiloError
from silo.kernels.kernel import kernel_of
from silo.machine.device_plugins import devices_named
from silo.machine.process_session import session
from silo.measuring.evaluators import CompiledArtifacts, evaluators
from silo.store.store import MemoryStore
from silo.tuner.lanes import Lanes
from silo.tuner.session import tune
from silo.tuner.session_values import SearchOptions, SessionScope
from silo.tuning.agents.connection import PipeSource
from silo.tuning.agents.fleet import Fleet
from silo.tuning.agents.remote_evaluator import fleet_lanes
from silo.tuning.case_tuning import case_benches, case_studies, made_study, sent_case


def prepared(kernel, device: Device):
    """Return the case's study and its compiled artifacts; a config that does not compile fails again later, at once."""
    (study,) = case_studies(kernel, device)
    compilation = Compilation(session(), kernel.source)
    artifacts = CompiledArtifacts(compilation, lambda config: kernel.resolver.variant(study.situation, config))
    artifacts.prepare(study.situation.candidates)
    for config in study.situation.candidates:
        with contextlib.suppress(SiloError):
            artifacts.get(config)
    return study, artifacts


def measured(study, placed: AbstractContextManager[Lanes]) -> dict[str, float]:
    """Return the seconds to start the measuring processes, and then to measure every config."""
    situation = study.situation
    begin = time.perf_counter()
    with placed as lanes:
        lanes.prepare(())
        first = situation.candidates[: lanes.count]
        for config in first:  # copies the arguments, and loads a first kernel on every device
            lanes.start(config)
        for _ in first:
            lanes.finish()
        started = time.perf_counter()
        outcome = tune(
            made_study(study),
            ConfigSet(situation.candidates),
            lanes,
            MemoryStore().records,
            SearchOptions("exhaustive"),
            SessionScope(finalists=0),
        )
        ended = time.perf_counter()
    return {"start_s": started - begin, "seconds": ended - started, "measured": outcome.measured}


def on_devices(study, artifacts, devices: Sequence[Device]) -> dict[str, float]:
    """Measure by processes that this process starts, one for each device."""
    benches = case_benches(study, devices[1:])
    candidates = study.situation.candidates
    return measured(study, evaluators(made_study(study), artifacts, benches, study.case.compare, candidates))


def on_agents(study, artifacts, devices: Sequence[Device]) -> dict[str, float]:
    """Measure by agents on pipes, one for each device."""
    agent = [sys.executable, "-m", "silo", "agent", "--device"]
    commands = [shlex.join([*agent, f"{device.target.kind}:{device.index}"]) for device in devices]
    sent = sent_case(study, made_study(study))
    with Fleet([PipeSource(command) for command in commands]) as fleet:
        placed = fleet_lanes(fleet, sent, artifacts, lambda artifact: stored_code(session().store, artifact))
        return measured(study, placed)


def main(size: str, configs: str = "", device: str = "cuda") -> None:
    """Measure on one device and on all devices; print the results as JSON."""
    extent = int(size)
    space = kernels.WIDE if device == "cuda" else kernels.SMALL
    made = kernels.tuned_by_silo(space[:: len(space) // int(configs)] if configs else space)

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
    found: dict[str, float] = {"count": len(devices), "configs": len(study.situation.candidates)}
    for prefix, way in (("", on_devices), ("agents_", on_agents)):
        one, every = (way(study, artifacts, some) for some in (devices[:1], devices))
        found |= {f"{prefix}one_s": one["seconds"], f"{prefix}all_s": every["seconds"]}
        found |= {f"{prefix}one_start_s": one["start_s"], f"{prefix}all_start_s": every["start_s"]}
        found |= {f"{prefix}measured": every["measured"]}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
