"""A program for ``silo exec``: runs kinds of the census as they are, and prints what became of them as a line of JSON.

``exec_census.py [--configs=N] [--moved=N] [--longer=N] [--share=I/N] [--hooks] [--cuda] [WORD...]``:
kinds whose label holds a word, or every N-th of them from the I-th on.
``--hooks``: each kind once more, with a hook of Triton's that sees its launches.
``--cuda``: torch's default device is ``cuda``; for ``silo exec --on cpu``.
"""

import json
import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("LIGER_FUSED_MOE_AUTOTUNE", "0")
sys.path[:0] = [str(Path(__file__).resolve().parent)]

import census_kinds  # noqa: E402
import torch  # noqa: E402
from census_missing import MISSING  # noqa: E402
from triton.compiler import compiler  # noqa: E402
from triton.runtime.autotuner import Autotuner  # noqa: E402

COUNTS = {"compiles": 0, "measured": 0}
_backend, _bench = compiler.make_backend, Autotuner._bench


def make_backend(target):
    made = _backend(target)
    stages = made.add_stages

    def add_stages(*args, **kwargs):
        COUNTS["compiles"] += 1
        return stages(*args, **kwargs)

    made.add_stages = add_stages
    return made


def bench(self, *args, config, **kwargs):
    COUNTS["measured"] += 1
    return _bench(self, *args, config=config, **kwargs)


def main(words):
    options = dict(one[2:].split("=") for one in words if "=" in one)
    census_kinds.CONFIGS, census_kinds.MOVED[0] = int(options.get("configs", 1)), int(options.get("moved", 0))
    census_kinds.LONGER[0] = int(options.get("longer", 0))
    compiler.make_backend, Autotuner._bench = make_backend, bench
    words = [one for one in words if not one.startswith("--")]
    if "--cuda" in sys.argv:
        torch.set_default_device("cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds, _ = census_kinds.load_kinds(on_cuda="--cuda" in sys.argv)
    wrong, unseen = {}, []
    chosen = [
        one
        for label, one in kinds.items()
        if label not in MISSING and (not words or any(word in label for word in words))
    ]
    share, shares = map(int, options.get("share", "0/1").split("/"))
    chosen = chosen[share::shares]
    for one in chosen:
        try:
            one.run()
        except Exception as error:  # noqa: BLE001  # a kind may fail in any way
            wrong[one.label] = f"{type(error).__name__}: {error}"
        if "--hooks" in sys.argv:
            with census_kinds.launched_kernels() as kernels:
                try:
                    one.run()
                except Exception as error:  # noqa: BLE001
                    wrong[f"{one.label}, with a hook"] = f"{type(error).__name__}: {error}"
            if not kernels:
                unseen.append(one.label)
    tuners = [one for one in _tuners() if one.cache]
    print(json.dumps({"kinds": len(chosen), "wrong": wrong, "unseen": unseen, **COUNTS, "tuners": len(tuners)}))


def _tuners():
    import gc

    return [one for one in gc.get_objects() if isinstance(one, Autotuner)]


if __name__ == "__main__":
    main(sys.argv[1:])
