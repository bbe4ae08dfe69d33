"""The rate at which ``silo judge`` judges candidates: ``python -m bench.judge [COUNT] [--jobs N] [--json FILE]``.

Each candidate is an elementwise kernel with a text of its own, judged on 12 cases up to the comparison with the
reference (nothing is timed). The output has the candidates per second, and the CPU time of one candidate's processes,
which changes less on a busy machine: 16 divided by it is the rate that 16 idle cores would have. Beside honest
candidates there are hostile ones, which end early. The command fails if an honest candidate is refused, and prints the
reasons.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median

import silo
from bench.machine import describe
from silo.judging.cascade import Judge, Submission

TEXT = """
import silo, triton, triton.language as tl

@silo.kernel(space={{"BLOCK": [1024]}}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m) * {factor}, mask=m)
"""
HOSTILE = "\nimport os\nwhile True: os.fork()\n"


@silo.task(values=("normal", "zeros", "repeated", "integers", "wide", "large", "denormal", "nan", "infinite"))
def scaled(draw):
    n = draw.size(1, 5000)
    x, y, out = draw.array(n), draw.array(n), draw.empty(n)
    return draw.case(lambda: {"out": x.double + y.double}, x=x, y=y, out=out, n=n)


def main(words):
    parser = argparse.ArgumentParser(prog="bench.judge")
    parser.add_argument("count", type=int, nargs="?", default=40)
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(words)
    rows = []
    refused = Counter()
    with Judge(scaled, device=None) as judge:
        judge.prepare()
        list(judge.judge([Submission("first", TEXT.format(factor="1.0"))]))  # starts the judge's server process
        # The same computation with a factor written in different ways: float32 rounds each of them to 1.0.
        honest = [
            Submission(f"honest {one}", TEXT.format(factor=f"(1.0 + {one} * 1e-9)")) for one in range(asked.count)
        ]
        hostile = [Submission(f"hostile {one}", HOSTILE + TEXT.format(factor=one)) for one in range(asked.count)]
        for name, submissions in (("honest", honest), ("hostile", hostile)):
            begin = time.monotonic()
            found = list(judge.judge(submissions, jobs=asked.jobs))
            seconds = time.monotonic() - begin
            cpu_s = median(one.figures["cpu_s"] for one in found)
            rows.append(
                {
                    "candidates": name,
                    "count": len(found),
                    "accepted": sum(one.accepted for one in found),
                    "a_second": round(len(found) / seconds, 2),
                    "cpu_s_each": round(cpu_s, 3),
                    "a_second_on_16_cores_by_cpu_time": round(16 / cpu_s, 1),
                }
            )
            print(rows[-1], flush=True)
            if name == "honest":
                refused.update(f"{one.stage}: {one.reasons[0]}" for one in found if not one.accepted)
    if asked.json:
        asked.json.write_text(json.dumps({"machine": describe(), "rows": rows, "refused": refused}, indent=1))
    for reason, count in refused.most_common(5):
        print(f"{count} honest candidates refused at {reason}", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
