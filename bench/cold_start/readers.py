"""The first launch of 1,000 variants with the reader and the choice in Python, and with those in C in their place.

    python -m bench.cold_start.readers [--repeats N] [--json FILE]

Pairs of fresh processes over a driver that returns at once, so only Silo's own part is in the figures. In C's place
stands the least there could be: what a launch needs besides the choice (the plan of the launcher, launch info, the
values behind a binding) was written down beforehand; trust, plug-ins and errors are left out. What that gains is the
most that a first launch through C could.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "src"))

from bench.cold_start.command import prepare, sample  # noqa: E402
from bench.launch import stub  # noqa: E402
from bench.machine import describe, save  # noqa: E402
from bench.paired import median_interval, ratios  # noqa: E402
from silo.settings import child_environment  # noqa: E402

CORE = ROOT / "native" / "core"
STEPS = ("arguments", "open", "launch", "first launch")
ENOUGH = 2.0  # times faster: less is not worth a second way


def build(folder: Path) -> Path:
    """The reader and the choice as a library of their own."""
    output = folder / "reader.so"
    command = ["gcc", "-std=c11", "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC", f"-I{CORE}"]
    sources = [str(HERE / "reader.c"), *map(str, sorted(CORE.glob("*.c")))]
    subprocess.run([*command, *sources, "-ldl", "-pthread", "-o", str(output)], check=True)
    return output


def written_down(bundle: Path) -> dict[str, Any]:
    """What a launch of the variant to be found needs besides the choice."""
    from silo import load
    from silo.core.plugins import shipped_options
    from silo.launch import runtime

    kernels = load(bundle)
    kernel = kernels[next(iter(kernels))]
    contents = kernel.contents
    artifact = contents.variants[-1].artifact
    variant = artifact.variant
    return {
        "name": kernel.name,
        "plan": runtime._plan(  # noqa: SLF001  # what a reader in C would make
            kernel.name, kernel.signature, key=contents.key, config_names=contents.config_names
        ),
        "options": shipped_options(),
        "launch": artifact.launch.to_json(),
        "head": contents.signature.to_json(),
        "signature": variant.signature.to_json(),
        "specialization": variant.specialization.to_json(),
        "config": variant.config.to_json(),
        "target": str(variant.target),
        "number": len(contents.variants) - 1,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cold_start.readers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeats", type=int, default=25, help="pairs of processes")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    options = parser.parse_args()
    samples: dict[str, list[dict[str, Any]]] = {"python": [], "c": []}
    with tempfile.TemporaryDirectory(prefix="silo-readers-") as text:
        folder = Path(text)
        environment = child_environment(SILO_HOME=str(folder / "home"), SILO_TUNE="off")
        environment["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT}"
        library = stub.build(folder)
        environment.update(stub.environment(library))
        prepare(folder, environment)
        bundle = folder / "thousand.silo"
        facts = folder / "facts.json"
        facts.write_text(json.dumps(written_down(bundle)), encoding="utf-8")
        child = [sys.executable, str(HERE / "reader_child.py")]
        more = [str(bundle), str(library), str(facts), str(build(folder))]
        for number in range(options.repeats + 1):
            for way, done in samples.items():
                taken = sample([*child, way, *more], environment)
                if number:  # the first warms the disk
                    done.append(taken["steps"])
    figures: dict[str, Any] = {}
    for clock in ("wall", "cpu"):
        for way, done in samples.items():
            steps = {step: median_interval([one[step][clock] for one in done]).median for step in STEPS}
            figures[f"{way}, {clock}"] = steps
            print(f"{way:8}{clock:6}" + "".join(f"{step}: {value / 1e6:8.2f} ms  " for step, value in steps.items()))
        totals = {way: [one["first launch"][clock] for one in done] for way, done in samples.items()}
        gain = median_interval(ratios(totals["python"], totals["c"]))
        figures[f"times faster, {clock}"] = [gain.median, gain.low, gain.high]
        print(
            f"{clock}: {gain.median:.2f} times faster ({gain.low:.2f} to {gain.high:.2f}); worth it from {ENOUGH:g} on"
        )
    if options.json:
        save(options.json, describe(), {"bench": "cold_start.readers", "repeats": options.repeats, "figures": figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())
