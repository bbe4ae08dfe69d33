"""CPU time of compiling one config of each example kernel, from TTIR text to a loaded object.

    python bench/cpu_compile.py [--repeats N] [--output FILE]

CPU time of this process and of the C compiler it starts, by ``getrusage``; the median of the repeats. Beside it, the
wall time of Triton's front end once it is warm, and how large the C source and the object are.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from machine import describe

from silo.api.collect import collect_kernels
from silo.api.derived import derive
from silo.api.studying import case_studies
from silo.backends.cpu.compiler import CpuCompiler
from silo.backends.cpu.device import devices
from silo.backends.cpu.load import load
from silo.core.specialization import Specialization
from silo.core.variant import Variant
from silo.sources.triton.source import TritonSource

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Row:
    """One kernel and config; times in milliseconds, sizes in bytes."""

    kernel: str
    config: str
    front_end_ms: float
    compile_ms: float
    slowest_ms: float
    source_bytes: int
    object_bytes: int


def cpu_ms() -> float:
    """CPU time used so far by this process and the children it waited for, in milliseconds."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime)


def variants() -> list[tuple[TritonSource, Variant]]:
    """Source and variant of the first case of each example kernel, one for every config of its space."""
    device = devices()[0]
    found: list[tuple[TritonSource, Variant]] = []
    for kernel in collect_kernels([ROOT / "examples" / "kernels.py"]):
        situation = case_studies(kernel, device)[0].situation
        seen = situation.specialization
        for config in situation.candidates:
            extra = derive(kernel.derived, situation.values, config.as_dict(), device.facts())
            constants = tuple({**extra, **seen.constant_values}.items())
            specialization = Specialization(seen.facts, constants)
            name, fingerprint = kernel.name, kernel.source.fingerprint
            found.append(
                (
                    kernel.source,
                    Variant(name, fingerprint, situation.signature, specialization, config, device.target),
                )
            )
    return found


def measure(repeats: int) -> list[Row]:
    """Every example kernel; a config whose job equals an earlier one is compiled once, as in a build."""
    compiler = CpuCompiler()
    rows: list[Row] = []
    jobs: set[str] = set()
    for source, variant in variants():
        job = compiler.lower(source, variant)
        begin = time.perf_counter()
        compiler.lower(source, variant)
        front_end = 1e3 * (time.perf_counter() - begin)
        key = job.key("")
        if key in jobs:
            continue
        jobs.add(key)
        compiled = compiler.compile(job)
        times = [timed(lambda job=job: load(compiler.compile(job))) for _ in range(repeats)]
        rows.append(
            Row(
                variant.kernel,
                str(variant.config),
                front_end,
                statistics.median(times),
                max(times),
                len(compiled.sidecars[0].data),
                len(compiled.blob.data),
            )
        )
    return rows


def timed(action: Callable[[], object]) -> float:
    """CPU time of one action in milliseconds."""
    begin = cpu_ms()
    action()
    return cpu_ms() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows = measure(arguments.repeats)
    print(f"{'kernel':12} {'compile ms':>10} {'slowest':>8} {'front end':>10} {'C bytes':>8} {'object':>7}  config")
    for row in rows:
        print(
            f"{row.kernel:12} {row.compile_ms:10.1f} {row.slowest_ms:8.1f} {row.front_end_ms:10.1f}"
            f" {row.source_bytes:8} {row.object_bytes:7}  {row.config}"
        )
    times = [row.compile_ms for row in rows]
    print(f"median {statistics.median(times):.1f} ms, largest {max(times):.1f} ms")
    if arguments.output:
        text = json.dumps({"machine": describe(), "rows": [asdict(row) for row in rows]}, indent=2)
        arguments.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
