"""``python -m tests.operators``: every operator of torch's table, in worker processes."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

DTYPES = ("float32", "bfloat16", "int64", "float16", "bool")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="worker processes (1)")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help=f"({','.join(DTYPES)})")
    parser.add_argument("--samples", type=int, default=1, help="samples of each operator (1)")
    parser.add_argument("--only", default="", help="operators whose names have this text in them")
    parser.add_argument("--choose", type=int, default=0, help="so many operators, by chance (all)")
    parser.add_argument("--seed", type=int, default=0, help="of that chance (0)")
    parser.add_argument(
        "--skip", type=int, default=0, help="leave out so many of them, which an earlier run compared (0)"
    )
    parser.add_argument("--batch", type=int, default=8, help="operators of one worker process (8)")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing after so long")
    parser.add_argument("--forward", action="store_true", help="no gradients")
    parser.add_argument("--json", type=Path, help="keep the outcomes here, a line each")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    return work(given) if given.worker else lead(given)


def lead(given: argparse.Namespace) -> int:
    """Hand out operators to processes, each in its turn, and tell what came of them."""
    from tests.operators.comparing import names_of, table

    names = [names_of(info) for info in table() if given.only in names_of(info)]
    random.Random(given.seed).shuffle(names)
    names = names[: given.choose or None][given.skip :]
    batches = [names[start : start + given.batch] for start in range(0, len(names), given.batch)]
    begin, found = time.monotonic(), []

    def run(batch: list[str]) -> None:
        rest = list(batch)
        while rest and time.monotonic() - begin < given.seconds:
            done, last = _batch(given, rest)
            for one in done:
                found.append(one)
                _tell(one)
            _keep(given.json, found)
            if not last:
                return
            found.append({"operator": last, "dtype": "", "sample": 0, "status": "failed", "detail": "the process died"})
            _tell(found[-1])
            rest = rest[rest.index(last) + 1 :]

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(run, batches))
    _keep(given.json, found)
    count = Counter((one["dtype"], one["status"]) for one in found)
    for (dtype, status), number in sorted(count.items()):
        print(f"{dtype:9} {status:10} {number}")
    served = sum(1 for one in found if one.get("kernels"))
    print(f"{len(found)} comparisons, {served} of them with generated kernels, {time.monotonic() - begin:.0f} s")
    return 1 if any(one["status"] in ("wrong", "failed") for one in found) else 0


def _keep(file: Path | None, found: list[dict]) -> None:
    """Write the outcomes so far, so that a run that is stopped has them."""
    if file:
        file.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")


def _batch(given: argparse.Namespace, names: list[str]) -> tuple[list[dict], str]:
    """The outcomes of some operators in one process, and the one at which it died."""
    command = [sys.executable, "-m", "tests.operators", "--worker", "--dtypes", given.dtypes]
    command += ["--samples", str(given.samples), *(["--forward"] if given.forward else [])]
    process = subprocess.run(
        command,
        input="\n".join(names),
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        env={**os.environ, "SILO_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    done, last = [], ""
    for line in process.stdout.splitlines():
        if line.startswith("begin "):
            last = line.removeprefix("begin ")
        elif line.startswith("{"):
            done.append(json.loads(line))
        elif line == "end":
            last = ""
    if last:
        print(process.stderr[-2000:], file=sys.stderr)
    return done, last


def _tell(one: dict) -> None:
    if one["status"] in ("wrong", "failed", "elsewhere"):
        print(f"{one['status']}: {one['operator']} {one['dtype']} sample {one['sample']}: {one['detail']}", flush=True)


def work(given: argparse.Namespace) -> int:
    """In a worker: the operators named on standard input."""
    import warnings

    warnings.filterwarnings("ignore")
    import torch

    from silo.integrations import inductor
    from tests.operators.comparing import compare, names_of, table

    torch.set_num_threads(1)
    wanted = [name for name in sys.stdin.read().splitlines() if name]
    known = {names_of(info): info for info in table()}
    if unknown := sorted(set(wanted) - set(known)):
        sys.exit(f"this torch has no operator called {', '.join(unknown)}")
    enabled = inductor.enable()
    assert enabled, enabled.decision.reason
    for name in wanted:
        print(f"begin {name}", flush=True)
        for text in given.dtypes.split(","):
            dtype = getattr(torch, text)
            if dtype in known[name].supported_dtypes("cpu"):
                for outcome in compare(known[name], dtype, given.samples, backward=not given.forward):
                    print(json.dumps(outcome.to_json()), flush=True)
    print("end", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
