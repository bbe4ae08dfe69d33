"""Runs and checks every case of a bundle: ``demo_run.py K.silo``.

Exits with 1 if a result is wrong, or if Triton or torch was loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

from demo_table import case_name, print_table

from silo.commands.bundle_description import describe_bundle
from silo.commands.run_cases import run_cases
from silo.text_tables import format_bytes, format_time


def main() -> int:
    """Print the table, the modules that were loaded, the targets and the size."""
    bundle = Path(sys.argv[1])
    outcomes = run_cases(bundle)
    rows = [
        [
            outcome.kernel,
            case_name(outcome.case),
            "ok" if outcome.ok else "WRONG",
            format_time(outcome.time_ns) if outcome.time_ns is not None else "",
            f"{outcome.max_error:.2g}" if outcome.max_error is not None else "",
        ]
        for outcome in outcomes
    ]
    print_table(["kernel", "case", "result", "time", "largest error"], rows, right=2)
    for outcome in outcomes:
        if not outcome.ok:
            print(f"{outcome.kernel} {outcome.case}: {outcome.message}")
    loaded = [name for name in ("triton", "torch") if name in sys.modules]
    if loaded:
        print(f"this process loaded {' and '.join(loaded)}, which it should not need")
    else:
        print("this process imported neither Triton nor torch")
    description = describe_bundle(bundle)
    kernels, variants = len(description.kernels), len(description.variants)
    print(f"{bundle.name}: {format_bytes(description.size_bytes)}, {variants} variants of {kernels} kernels for")
    print(f"  {', '.join(description.targets)}")
    return 1 if loaded or not all(outcome.ok for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
