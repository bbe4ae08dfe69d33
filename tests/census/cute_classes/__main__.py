"""``python -m tests.census.cute_classes CHECKOUT [--only NAME]``: CHECKOUT: NVIDIA's repository cutlass."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import silo
from silo.errors import SiloError

from .classes import CLASSES, PublicClass, kernel_of


def _built(checkout: Path, one: PublicClass) -> str:
    """Builds a class for its target. Returns "" or the reason of the refusal."""
    try:
        kernel = kernel_of(checkout, one)
        with tempfile.TemporaryDirectory() as folder:
            silo.build(kernel, output=Path(folder, "k.silo"), targets=[one.target], tune="off")
    except SiloError as error:
        return str(error)
    return ""


def main(words: list[str]) -> int:
    """Returns 1 if a class was refused."""
    parser = argparse.ArgumentParser(prog="python -m tests.census.cute_classes")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args(words)
    chosen = [one for one in CLASSES if options.only in one.name]
    failed = 0
    for one in chosen:
        reason = _built(options.checkout.resolve(), one)
        failed += bool(reason)
        print(f"{one.name:36} {one.target:14} {'refused' if reason else 'built'}", flush=True)
        if reason:
            print("    " + reason.replace("\n", "\n    ")[:1500])
    print(f"{len(chosen) - failed} of {len(chosen)} built")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
