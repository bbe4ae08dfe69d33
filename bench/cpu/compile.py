"""CPU time of compiling each config of the CPU benchmark's kernels, from TTIR text to a loaded object.

    python -m bench.cpu.compile [--rows add ...] [--dtypes fp32 ...] [--repeats N] [--json FILE]

It counts the CPU time of this process and of the C compiler that it starts (``getrusage``), as the median of the
repeats. Beside it stand the CPU and wall time of a compile that also makes the code that kernels with matrix products
share, the wall time of Triton's front end once it is warm, and the sizes of the C source and of the object.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from bench.cpu.table import ROWS, chosen  # after the path
from bench.cpu.work import Call
from bench.machine import describe, save
from silo.core.protocols import CompileJob
from silo.core.variant import Variant
from silo.errors import SiloError
from silo.kernels.kernel import Kernel, kernel_of
from silo.kinds.triton.cpu.cpu_compiler import CpuCompiler
from silo.kinds.triton.cpu.object_build import forget_shared
from silo.launch.cpu_objects import load
from silo.launch.runtime import inspect_call

BAR_MS = 300.0


@dataclass
class Row:
    """One kernel with one config: times in milliseconds, sizes in bytes.

    If it did not compile, ``reason`` is the error.
    """

    row: str
    dtype: str
    kernel: str
    config: str
    reason: str = ""
    front_end_ms: float = 0.0
    compile_ms: float = 0.0
    slowest_ms: float = 0.0
    first_ms: float = 0.0
    first_wall_ms: float = 0.0
    source_bytes: int = 0
    object_bytes: int = 0


def cpu_ms() -> float:
    """Return the milliseconds of CPU time that this process and the children it has waited for have used."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime)


def variants(call: Call) -> Iterator[tuple[Kernel, Variant]]:
    """Yield a kernel of one launch and its variant for every config of the kernel's space."""
    kernel = kernel_of(call.kernel)
    assert kernel is not None
    seen = inspect_call(kernel.resolver.native, kernel.source.signature, *call.args, **call.kwargs)
    situation = kernel.resolver.understand(seen)
    for config in situation.candidates:
        yield kernel, kernel.resolver.variant(situation, config)


def measure(rows: list[tuple[str, str]], repeats: int) -> Iterator[Row]:
    """Yield a row for every kernel and config.

    Configs that lead to the same compile job are compiled once, as in a build.
    """
    compiler = CpuCompiler()
    jobs: set[str] = set()
    for name, dtype in rows:
        for call in ROWS[name][0]("quick", dtype).calls:
            for kernel, variant in variants(call):
                row = Row(name, dtype, kernel.name, str(variant.config))
                try:
                    job = compiler.lower(kernel.source, variant).job
                    begin = time.perf_counter()
                    compiler.lower(kernel.source, variant)
                    row.front_end_ms = 1e3 * (time.perf_counter() - begin)
                    key = job.key("")
                    if key in jobs:
                        continue
                    jobs.add(key)
                    _fill(row, compiler, job, repeats)
                except SiloError as error:
                    row.reason = " ".join(str(error).split())
                yield row


def _fill(row: Row, compiler: CpuCompiler, job: CompileJob, repeats: int) -> None:
    forget_shared()
    begin = time.perf_counter()
    row.first_ms = timed(lambda: load(compiler.compile(job)))
    row.first_wall_ms = 1e3 * (time.perf_counter() - begin)
    compiled = compiler.compile(job)
    times = [timed(lambda: load(compiler.compile(job))) for _ in range(repeats)]
    row.compile_ms, row.slowest_ms = statistics.median(times), max(times)
    row.source_bytes, row.object_bytes = len(compiled.sidecars[0].data), len(compiled.blob.data)


def timed(action: Callable[[], object]) -> float:
    """Return the CPU time that one action takes, in milliseconds."""
    begin = cpu_ms()
    action()
    return cpu_ms() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="+", help="only these")
    parser.add_argument("--dtypes", nargs="+", help="only these")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to keep the results")
    options = parser.parse_args()
    print(
        f"{'row':20}{'dtype':6}{'kernel':24}{'compile ms':>10} {'slowest':>8} {'first':>8} {'by clock':>8}"
        f" {'front end':>10} {'C':>8} {'object':>7}"
    )
    rows: list[Row] = []
    for row in measure(chosen(options.rows, options.dtypes), options.repeats):
        rows.append(row)
        head = f"{row.row:20}{row.dtype:6}{row.kernel:24}"
        if row.reason:
            print(f"{head}missing: {row.reason[:120]}", flush=True)
            continue
        print(
            f"{head}{row.compile_ms:10.1f} {row.slowest_ms:8.1f} {row.first_ms:8.1f} {row.first_wall_ms:8.1f}"
            f" {row.front_end_ms:10.1f}"
            f" {row.source_bytes:8} {row.object_bytes:7}  {row.config}",
            flush=True,
        )
    times = [row.compile_ms for row in rows if not row.reason]
    over = sum(value > BAR_MS for value in times)
    if times:
        print(f"median {statistics.median(times):.1f} ms, largest {max(times):.1f} ms")
    print(f"{over} of {len(times)} over the bar of {BAR_MS:g} ms; {len(rows) - len(times)} missing")
    if options.json:
        save(options.json, describe(), {"bar_ms": BAR_MS, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
