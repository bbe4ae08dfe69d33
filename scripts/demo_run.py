"""Run and check every case of a bundle, beside the times of a reference: ``demo_run.py K.silo REFERENCES.json``.

Exits with 1 where a result is wrong or where Triton or torch was loaded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from machine_load import LoadMeter
from rich.console import Console

from silo.cli.console import table
from silo.commands.bundle_description import describe_bundle
from silo.commands.run_cases import run_cases
from silo.tuner.progress import format_bytes, format_time


def main() -> int:
    """Print the table, what was loaded, the targets and the size."""
    bundle = Path(sys.argv[1])
    references = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    library, times = references["library"], references["times_ns"]
    meter = LoadMeter()
    outcomes = run_cases(bundle)
    load = meter.read()
    rows: list[list[str]] = []
    for outcome in outcomes:
        reference = times.get(f"{outcome.kernel} {outcome.case}")
        rows.append(
            [
                outcome.kernel,
                outcome.case,
                outcome.config,
                format_time(outcome.time_ns) if outcome.time_ns is not None else "",
                format_time(reference) if reference is not None else "",
                f"{outcome.max_error:.2g}" if outcome.max_error is not None else "",
                "ok" if outcome.ok else outcome.message,
            ]
        )
    columns = ["kernel", "case", "winner", "silo", library, "largest error", "result"]
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(
        table("every case, run from the bundle on the CPU", columns, rows, right=["silo", library, "largest error"])
    )
    console.print(f"timing Silo: {load}", highlight=False)
    console.print(f"timing {library}: {references['load']}", highlight=False)
    loaded = [name for name in ("triton", "torch") if name in sys.modules]
    if loaded:
        console.print(f"this process loaded {' and '.join(loaded)}, which it should not need")
    else:
        console.print("this process imported neither Triton nor torch")
    description = describe_bundle(bundle)
    console.print(f"targets: {', '.join(description.targets)}", highlight=False)
    console.print(
        f"{bundle.name}: {format_bytes(description.size_bytes)}, {len(description.variants)} variants of "
        f"{len(description.kernels)} kernels",
        highlight=False,
    )
    return 1 if loaded or not all(outcome.ok for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
