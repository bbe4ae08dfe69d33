"""Prints the table of the census: each kind, whether it runs, whether it is right, and why not.

``python tests/census/table.py [-v] [WORD...]`` runs the kinds whose label holds one of the words, by Triton through
Silo. ``-v``: with seconds.
"""

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("LIGER_FUSED_MOE_AUTOTUNE", "0")
sys.path[:0] = [str(Path(__file__).resolve().parent)]

from census_kinds import launched_kernels, load_kinds  # noqa: E402
from triton.backends import Backend, backends  # noqa: E402
from triton.runtime.driver import driver  # noqa: E402

from silo.kinds.triton.programs.backend.compiler import CpuBackend  # noqa: E402
from silo.kinds.triton.programs.backend.driver import CpuDriver  # noqa: E402


def outcome(kind):
    """(runs, right, reason)."""
    try:
        kind.run()
    except AssertionError as error:
        return "yes", "no", str(error)
    except Exception as error:  # noqa: BLE001  # a kind may fail in any way
        return "no", "", f"{type(error).__name__}: {error}"
    return "yes", "yes", ""


def main(words):
    backends.setdefault("silo", Backend(CpuBackend, CpuDriver))
    driver.set_active(CpuDriver())
    kinds, absent = load_kinds()
    chosen = [kind for label, kind in kinds.items() if not words or any(word in label for word in words)]
    counts = {"right": 0, "kernels": 0}
    print("| kind | kernels | runs | right | reason |\n| --- | --- | --- | --- | --- |")
    for kind in chosen:
        with launched_kernels() as kernels:
            start = time.perf_counter()
            runs, right, reason = outcome(kind)
            seconds = time.perf_counter() - start
        counts["right"] += right == "yes"
        counts["kernels"] += len(kernels)
        shown = " ".join(reason.split())[:300].replace("|", "/")
        print(f"| {kind.label} | {len(kernels)} | {runs} | {right} | {shown} |", flush=True)
        if "-v" in sys.argv:
            print(f"  {seconds:.1f} s", flush=True)
    print(f"\n{counts['right']} of {len(chosen)} kinds run and are right; {counts['kernels']} compiled kernels ran.")
    for source, reason in absent.items():
        print(f"Kinds of {source} are left out: {reason}.")


if __name__ == "__main__":
    main([word for word in sys.argv[1:] if not word.startswith("-")])
