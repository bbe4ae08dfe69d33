"""Times rows of the CPU benchmark in Triton's interpreter on small sizes; prints a line of JSON for each row named.

``measure.py`` runs it with ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from bench.cpu.table import ROWS  # imported after sys.path is extended


def main(names: list[str]) -> None:
    """Print, for each row, the seconds of a run divided by the row's ``work``: the faster of two warm runs."""
    for name in names:
        build, dtypes = ROWS[name]
        work = build("tiny", dtypes[0])
        try:
            work.interpret()
            error = work.error()
            seconds = min(_seconds(work.interpret) for _ in range(2))
        except Exception as failure:  # noqa: BLE001  # the interpreter may fail in any way; that is the row's reason
            reason = (str(failure).splitlines() or [""])[0][:200]
            print(json.dumps({"row": name, "reason": f"{type(failure).__name__}: {reason}"}), flush=True)
            continue
        if error <= 1:
            print(json.dumps({"row": name, "seconds_per_work": seconds / work.work}), flush=True)
        else:
            print(json.dumps({"row": name, "reason": f"wrong: {error:.3g} times the tolerance"}), flush=True)


def _seconds(run) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main(sys.argv[1:])
