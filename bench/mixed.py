"""Bundles of two versions of Triton, and one of both, compared on a GPU without compilers.

    python -m bench.mixed build FOLDER --old VENV --new VENV [--target cuda:sm_90a] [--kernel NAME]...
    python -m bench.mixed run FOLDER [--device cuda] [--seconds 0.5] [--json FILE]

``build`` needs no GPU: it compiles kernels of the examples in both environments into ``old.silo``, ``new.silo`` and
``mixed.silo``, and prints for how many variants registers or spills differ. ``run`` needs no compiler: it tunes the
mixed bundle on the device, then the other two, which reuse its trials, and compares the mixed bundle with each of them
in turns, case by case. It fails if the mixed bundle is significantly slower than one of them, or if it is nowhere
significantly faster, because then the comparison shows nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.machine import describe, save
from silo.bundle.mixed_compilers import compiler_names
from silo.bundle.reader import open_bundle
from silo.commands.build_with_toolchains import build_with_toolchains
from silo.commands.compare_bundles import BundleComparison, compare_bundles
from silo.commands.tune_cases import tune_path
from silo.shipping.slice_bundle import merge_bundles
from silo.tuner.measure import Speed

KERNELS = ("matmul", "softmax")
EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "kernels.py"


@dataclass(frozen=True)
class Beside:
    """One case: the mixed bundle's time over the old version's and over the new version's, with verdicts."""

    kernel: str
    case: str
    to_old: str
    old_verdict: str
    to_new: str
    new_verdict: str

    @property
    def slower(self) -> bool:
        """Whether the mixed bundle is significantly slower than one of the others."""
        return Speed.SLOWER.value in (self.old_verdict, self.new_verdict)

    @property
    def gains(self) -> bool:
        """Whether the mixed bundle is significantly faster than one of the others."""
        return Speed.FASTER.value in (self.old_verdict, self.new_verdict)


def beside(old: BundleComparison, new: BundleComparison) -> list[Beside]:
    """Join the cases of two comparisons with the mixed bundle; a case that failed has the reason as its verdict."""
    found = {(one.kernel, one.case): one for one in new.cases}
    rows: list[Beside] = []
    for one in old.cases:
        other = found[one.kernel, one.case]
        texts = [
            (one.ratio.text, one.ratio.speed.value) if one.ratio is not None else ("", one.reason or one.status)
            for one in (one, other)
        ]
        rows.append(Beside(one.kernel, one.case, *texts[0], *texts[1]))
    return rows


def build(folder: Path, old: Path, new: Path, target: str, kernels: Sequence[str]) -> None:
    """Writes the three bundles, and prints the differences of the first two."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"old": old, "new": new}
    for name, place in parts.items():
        build_with_toolchains(
            [EXAMPLES], folder / f"{name}.silo", [f"{name}={place}"], targets=[target], kernels=kernels, tune="off"
        )
    merge_bundles([folder / "old.silo", folder / "new.silo"], folder / "mixed.silo")
    found = compare_bundles(folder / "old.silo", folder / "new.silo", run=False)
    changed = [one for one in found.code if any("registers" in text or "spills" in text for text in one.changes)]
    print(f"{len(found.code) + found.same_code} variants, {len(changed)} with other registers or spills:")
    for one in changed:
        print(f"  {one.kernel} {one.config}: {', '.join(one.changes)}")


def chosen_by(path: Path) -> list[str]:
    """Returns a line for each bucket: the compiler and the config that it gets."""
    lines: list[str] = []
    with open_bundle(path) as bundle:
        contents = bundle.contents()
        every = (one.artifact.compiler for kernel in contents.kernels for one in kernel.variants)
        names = compiler_names(every, contents.toolchain)
        for kernel in contents.kernels:
            for rules in kernel.rules:
                for (bucket, config), compiler in zip(rules.rules.rules, rules.rule_compilers, strict=True):
                    lines.append(f"{kernel.name} {tuple(bucket)}: {names.get(compiler, 'any')}, {config}")
    return lines


def run(folder: Path, device: str, seconds: float, json: Path | None) -> int:
    """Tunes and compares; returns 1 if the mixed bundle is slower in some case, or faster in none."""
    begun = time.monotonic()
    paths = {name: folder / f"{name}.silo" for name in ("mixed", "old", "new")}
    for name, path in paths.items():
        rows = tune_path(path, device=device)
        measured = sum(row.measured for row in rows)
        print(f"tuned {name}: {measured} configs measured, {time.monotonic() - begun:.1f} s so far")
        for line in [line for row in rows for line in row.remarks if "of its time" in line]:
            print(f"  {line}")
    for line in chosen_by(paths["mixed"]):
        print(line)
    comparisons = [
        compare_bundles(paths[name], paths["mixed"], device=device, limit_s=seconds) for name in ("old", "new")
    ]
    rows = beside(*comparisons)
    for row in rows:
        print(
            f"{row.kernel} {row.case}: mixed / old {row.to_old} {row.old_verdict}; "
            f"mixed / new {row.to_new} {row.new_verdict}"
        )
    slower, gains = sum(row.slower for row in rows), sum(row.gains for row in rows)
    print(
        f"{len(rows)} cases: faster than one version alone {gains}, slower {slower}; {time.monotonic() - begun:.0f} s"
    )
    if json:
        save(json, describe(), {"rows": [asdict(row) for row in rows], "chosen": chosen_by(paths["mixed"])})
    return 1 if slower or not gains else 0


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("build", help="compile the bundles; needs no GPU")
    made.add_argument("folder", type=Path)
    made.add_argument("--old", type=Path, required=True, help="an environment with a version of Triton")
    made.add_argument("--new", type=Path, required=True, help="an environment with another version")
    made.add_argument("--target", default="cuda:sm_90a")
    made.add_argument("--kernel", action="append", help=f"of the examples; by default {', '.join(KERNELS)}")
    ran = commands.add_parser("run", help="tune and compare them; needs no compiler")
    ran.add_argument("folder", type=Path)
    ran.add_argument("--device", default="cuda:0")
    ran.add_argument("--seconds", type=float, default=0.5, help="the longest to compare one case for")
    ran.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.command == "build":
        build(asked.folder, asked.old, asked.new, asked.target, asked.kernel or KERNELS)
        return 0
    return run(asked.folder, asked.device, asked.seconds, asked.json)


if __name__ == "__main__":
    sys.exit(main())
