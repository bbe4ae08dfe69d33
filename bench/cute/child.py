"""Compiles in a fresh process: ``python -m bench.cute.child silo BUNDLE`` or ``... dsl``; prints one JSON line.

``other_s`` are seconds that do not count: if the DSL is measured, the import of Silo, which the example's file needs.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

ARCH = "sm_90a"


def with_silo(bundle: Path) -> dict[str, Any]:
    """Pack all configs for one size in a bundle; return how many were compiled and how many the store had."""
    from silo.commands.build_bundle import build_bundle

    summary = build_bundle(
        [Path(__file__).with_name("gemms.py")], bundle, targets=[f"cuda:{ARCH}"], tune="off", configs="all"
    )
    return {"compiled": summary.compiled, "reused": summary.reused, "other_s": 0.0}


def with_dsl() -> dict[str, Any]:
    """Compile the same configs by ``cute.compile``, one after the other; return their number."""
    begin = time.perf_counter()
    import silo  # noqa: F401  # what the example's file needs besides the DSL

    other_s = time.perf_counter() - begin
    import cutlass
    from cutlass import cute
    from cutlass.cute.runtime import make_fake_tensor

    from bench.cute.gemms import SIZE, SPACE, WgmmaGemm

    m, n, k = SIZE
    compiled = 0
    for config in configs(SPACE):
        arrays = (
            make_fake_tensor(cutlass.BFloat16, shape, (shape[1], 1), assumed_align=16)
            for shape in ((m, k), (n, k), (m, n))
        )
        cute.compile(WgmmaGemm(**config), *arrays, options=f"--gpu-arch {ARCH}")
        compiled += 1
    return {"compiled": compiled, "reused": 0, "other_s": other_s}


def configs(space: dict[str, list[int]]) -> Iterator[dict[str, int]]:
    """Yield every config of a space.

    >>> list(configs({"A": [1, 2], "B": [3]}))
    [{'A': 1, 'B': 3}, {'A': 2, 'B': 3}]
    """
    for values in product(*space.values()):
        yield dict(zip(space, values, strict=True))


if __name__ == "__main__":
    print(json.dumps(with_silo(Path(sys.argv[2])) if sys.argv[1] == "silo" else with_dsl()))
