"""The time that the flight recorder adds to a launch: bursts with it off, on, and with copies of arrays.

    python -m bench.launch.flight [--stub] [--json FILE] [--rounds 400]

The kernel has five pointers and three integers (torch tensors). Bursts with the recorder off and on take turns; the
figure is the median of the differences of neighbouring bursts, with the minimum over bursts beside it. With --stub (any
machine) the driver returns at once.
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from bench.launch import stub as launch_stub  # noqa: E402
from bench.launch.cases import CASES, ELEMENTS  # noqa: E402
from bench.machine import describe, save  # noqa: E402
from silo.settings import child_environment  # noqa: E402

BURST = 2000
COPY_BURST = 50


def measure(folder: Path | None, rounds: int) -> dict[str, Any]:
    """Measure in this process; return the nanoseconds of a launch with the recorder off, on, and with copies."""
    import torch

    case = next(one for one in CASES if one.key == "5+3")
    if folder is None:
        pointers: list[Any] = [torch.zeros(ELEMENTS, device="cuda") for _ in case.pointer_names]
        wait = torch.cuda.synchronize
    else:
        device = launch_stub.Device(folder)
        context = device.context(case, folder)
        pointers, wait = list(context.tensors.values()), device.synchronize
        device.record(on=False)
    from bench.launch.silo_kernels import nop_8
    from silo.launch import flight, native
    from silo.launch.hooks import on_launch

    call: Any = nop_8
    arguments = (*pointers, *case.integer_values().values())

    def burst(count: int) -> float:
        wait()
        begin = time.perf_counter_ns()
        for _ in range(count):
            call(*arguments)
        return (time.perf_counter_ns() - begin) / count

    burst(BURST)
    flight.start()
    burst(BURST)
    found: dict[str, list[float]] = {"off": [], "on": [], "difference": []}
    for turn in range(rounds):
        for way in ("off", "on") if turn % 2 else ("on", "off"):
            native.flight_stop() if way == "off" else flight.start()
            found[way].append(burst(BURST))
        found["difference"].append(found["on"][-1] - found["off"][-1])
    indices = [torch.zeros(1 << 17, dtype=torch.int64, device=pointers[0].device) for _ in range(1)]  # 1 MiB
    remove = on_launch(lambda event: flight.keep_copies(event, only_integers=False, most=1 << 20))
    copies = [burst(COPY_BURST) for _ in range(20)]
    remove()
    del indices
    return {
        "off_ns": min(found["off"]),
        "on_ns": min(found["on"]),
        "minimum_difference_ns": min(found["on"]) - min(found["off"]),
        "median_difference_ns": statistics.median(found["difference"]),
        "quartiles_ns": statistics.quantiles(found["difference"], n=4),
        "with_copies_of_5_arrays_of_4_kib_ns": min(copies),
        "last": flight.state()[0],
        "load": os.getloadavg()[0],
    }


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stub", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        folder = Path(options.child) if options.child else None
        print(json.dumps(measure(folder, options.rounds)))
        return 0
    with tempfile.TemporaryDirectory(prefix="silo-flight-") as name:
        folder = Path(name)
        more = launch_stub.environment(launch_stub.build(folder)) if options.stub else {}
        environment = child_environment(**more, SILO_FLIGHT_FILE=str(folder / "crash.silo"), SILO_TUNE="off")
        command = [sys.executable, "-m", "bench.launch.flight", "--rounds", str(options.rounds)]
        command += ["--child", str(folder) if options.stub else ""]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd=ROOT)
    found = json.loads(done.stdout.splitlines()[-1])
    for label, value in found.items():
        print(f"{label:40} {value}")
    if options.json is not None:
        save(options.json, describe(), {"flight": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
