"""A program with one tuned kernel: ``api_program.py N [MODE]`` makes a call and prints its effects as JSON."""
# pyright: reportAttributeAccessIssue=false

import json
import logging
import sys

import numpy as np
import triton
import triton.language as tl

import silo
from silo.building import compilation
from silo.calls import first_call


@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def main():
    n, mode = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("silo").addHandler(handler)
    logging.getLogger("silo").setLevel(logging.INFO)
    outcomes, submitted = [], []
    tune, submit = first_call.tune, compilation.Compilation._submit
    first_call.tune = lambda *args, **kwargs: outcomes.append(tune(*args, **kwargs)) or outcomes[-1]
    compilation.Compilation._submit = lambda *args: submitted.append(1) or submit(*args)

    kernel = silo.kernel(
        space={"BLOCK": [256, 512, 1024], "num_warps": [4]},
        key=["n"],
        grid=lambda a: (silo.cdiv(a.n, a.BLOCK),),
        tune=mode,
    )(add_one)
    x = np.arange(n, dtype=np.float32)
    kernel(x, n)
    config, _, why = kernel.explain(x, n).partition("config: ")[2].partition(" (")
    print(
        json.dumps(
            {
                "right": bool((x == np.arange(n) + 1).all()),
                "measured": sum(outcome.measured for outcome in outcomes),
                "compiled": len(submitted),
                "config": config,
                "origin": why.partition(":")[0],
                "messages": messages,
            }
        )
    )


if __name__ == "__main__":
    main()
