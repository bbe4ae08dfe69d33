"""A program with kernels of its own: records, or is served; prints what its launches gave, and what was compiled.

``recorded_program.py record|replay|plain K.silo [name=value...]``
"""

import json
import sys
import time

import numpy as np
import triton
import triton.language as tl
from triton.backends.amd.driver import HIPDriver

HIPDriver.is_active = staticmethod(lambda: False)  # to see that, it imports torch, which takes longer than all the rest
COMPILES = []
MEASURED = []
PREFERS = [0]  # of each tuner's configs: -1 the last, 1 the first, 0 the fastest


@triton.jit
def add(x, y, out, n, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    value = tl.load(x + i, mask=mask)
    if y is not None:
        value += tl.load(y + i, mask=mask)
    tl.store(out + i * step, value, mask=mask)


def measure(call, quantiles):
    """Without torch, as above."""
    call()
    if PREFERS[0]:
        MEASURED.append(1)
        return [1e3 + PREFERS[0] * len(MEASURED)] * len(quantiles)
    begin = time.perf_counter()
    call()
    return [time.perf_counter() - begin] * len(quantiles)


@triton.autotune([triton.Config({"BLOCK": block}) for block in (64, 128)], key=["n"], do_bench=measure)
@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


class Array:
    """An array as Triton takes it."""

    def __init__(self, values):
        self.values = values
        self.dtype = values.dtype

    def data_ptr(self):
        return self.values.ctypes.data


def run_add(n, step=1, offset=0):
    x = np.arange(n + offset, dtype=np.float32)[offset:]
    out = np.zeros(n * step, dtype=np.float32)
    add[(triton.cdiv(n, 128),)](Array(x), Array(np.ones(n, dtype=np.float32)), Array(out), n, step, BLOCK=128)
    assert np.array_equal(out[::step], x + 1)


def run_scale(n, offset=0):
    x = np.arange(n + offset, dtype=np.float32)[offset:]
    out = np.zeros(n, dtype=np.float32)
    scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](Array(x), Array(out), n, 3.0)
    assert np.array_equal(out, x * 3)
    return scale.best_config.kwargs["BLOCK"]


def count_compiles():
    """Every compile that Triton does, whoever asks."""
    from triton.compiler import compiler

    backend = compiler.make_backend

    def counted(target):
        made = backend(target)
        stages = made.add_stages

        def add_stages(*args, **kwargs):
            COMPILES.append(1)
            return stages(*args, **kwargs)

        made.add_stages = add_stages
        return made

    compiler.make_backend = counted


def main():
    mode, path, *rest = sys.argv[1:]
    options = dict(one.split("=") for one in rest)
    from silo.kinds.triton.programs.records.capture_activation import record, replay

    count_compiles()
    PREFERS[0] = int(options.get("prefers", 0))
    end = None
    if mode == "record":
        end = record(path)
    elif mode == "replay":
        end = replay(path, frozen="open" not in options)
    elif mode == "accelerate":
        from triton.runtime.autotuner import Autotuner

        import silo

        before = dict(vars(Autotuner))
        acceleration = silo.accelerate()

        def undo():
            acceleration.stop()
            assert dict(vars(Autotuner)) == before

        end = undo

    first = int(options.get("first", 1024))
    run_add(first)
    winners = [run_scale(n) for n in (512, 1000)]
    if "other" in options:
        run_add(1000, step=2)
        run_add(999, step=1, offset=1)
        run_add(17, step=3, offset=3)
        run_scale(777, offset=1)
    for _ in range(int(options.get("again", 0))):
        run_add(first)
        assert [run_scale(n) for n in (512, 1000)] == winners
        if "other" in options:
            run_add(999, step=1, offset=1)
            run_scale(777, offset=1)
    if "wait" in options:
        print("ready", flush=True)
        time.sleep(60)
    if end is not None:
        end()
    print(json.dumps({"winners": winners, "compiles": len(COMPILES)}))


if __name__ == "__main__":
    main()
