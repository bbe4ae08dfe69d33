"""The bundles that the benchmark opens, built once by ``python -m bench.cpp.bundles FOLDER [GPU]``.

``nop`` has the kernels of ``bench.launch``, for the CPU. ``demo`` has the examples for the targets of ``scripts/demo``.
``thousand`` has one kernel with 1,000 CPU variants. If the target of a GPU is given, ``nop-gpu``, ``demo-gpu`` and
``thousand-gpu`` are made for it too.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.cold_start.bundles import multiplied, write
from silo.bundle.reader import open_bundle

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "kernels.py"
DEMO_TARGETS = ("cpu", "cuda:sm_80", "cuda:sm_90", "hip:gfx942")
VARIANTS = 1000
ADD = "add"  # a kernel of the examples: out = x + y


def build(folder: Path, gpu: str | None = None) -> None:
    """Write the bundles; needs Triton and a C compiler."""
    from bench.launch import silo_kernels
    from silo.commands.build_bundle import build_bundle

    nops = Path(silo_kernels.__file__)
    build_bundle([nops], folder / "nop.silo", targets=["cpu"], tune="off")
    build_bundle([EXAMPLES], folder / "demo.silo", targets=list(DEMO_TARGETS), tune="off")
    _thousand(folder / "demo.silo", folder / "thousand.silo", "cpu")
    if gpu is not None:
        build_bundle([nops], folder / "nop-gpu.silo", targets=[gpu], tune="off")
        build_bundle([EXAMPLES], folder / "demo-gpu.silo", targets=["cpu", gpu], tune="off", kernels=[ADD])
        _thousand(folder / "demo-gpu.silo", folder / "thousand-gpu.silo", gpu.partition(":")[0])


def _thousand(source: Path, path: Path, kind: str) -> None:
    """Write a bundle of the kernel ``add`` with 1,000 variants, multiplied from those for one kind of target."""
    from dataclasses import replace

    with open_bundle(source) as bundle:
        kernel = bundle.kernel(ADD)
        kept = tuple(one for one in kernel.variants if one.artifact.variant.target.kind == kind)
        blobs: dict[str, bytes] = {}
        write(path, bundle, [multiplied(bundle, replace(kernel, variants=kept), VARIANTS, blobs)], blobs)


if __name__ == "__main__":
    build(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
