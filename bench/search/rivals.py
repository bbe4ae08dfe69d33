"""Runs Kernel Tuner's strategies on recorded spaces and keeps their results; needs only ``kernel_tuner`` and numpy.

    python -m bench.search.rivals FOLDER RESULTS.json [--seeds 100]

Runs that the file already holds are not repeated, and the file is written after every few runs, so that the program may
be stopped and started again. A strategy is run anew for each budget, because several strategies plan with the budget.
Kernel Tuner reads and builds a space again for every run. Here each space is read and built once, and each run gets
empty neighbour caches of its own, so that it behaves as in a new process.
"""
# kernel_tuner is installed in a separate environment.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import copy
import gzip
import importlib.metadata
import json
import random
import re
import tempfile
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import kernel_tuner
import numpy as np
from kernel_tuner import interface, searchspace, util

SCHEMA = "search-rivals/2"
BUDGETS = (25, 50, 100)
STRATEGIES = (
    "adaptive_tabu_greywolf",
    "hybrid_vndx",
    "pso",
    "genetic_algorithm",
    "simulated_annealing",
    "random_sample",
)
METHODS = ("strictly-adjacent", "adjacent", "Hamming")


class Space:
    """One recorded space, read and built once."""

    def __init__(self, path: Path, stand_in: Path) -> None:
        self.stand_in = stand_in  # a file that Kernel Tuner requires to exist; its contents are taken from memory
        self.name = path.name.removesuffix(".json.gz")
        self.cache: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        for row in self.cache["cache"].values():
            if isinstance(row["time"], str):
                row["__error__"] = getattr(util, row["time"])()
        self.optimum = min(row["time"] for row in self.cache["cache"].values() if "__error__" not in row)
        self.arguments = util.infer_args_from_cache(self.cache)
        restriction = util.infer_restrictions_from_cache(self.cache)
        self.built = searchspace.Searchspace(self.arguments["tune_params"], [restriction], 1_000_000_000)
        for method in METHODS:  # the first call of each method builds its tables
            self.built.get_neighbors(self.built.list[0], neighbor_method=method)

    def fresh(self) -> searchspace.Searchspace:
        """Return the space as a new process would have it, with empty neighbour caches."""
        made = copy.copy(self.built)
        methods = searchspace.supported_neighbor_methods
        vars(made)["_Searchspace__neighbor_cache"] = {method: {} for method in methods}
        vars(made)["_Searchspace__neighbor_partial_cache"] = {method: defaultdict(list) for method in methods}
        return made

    def run(self, strategy: str, seed: int, evaluations: int) -> tuple[list[float], float]:
        """Return the distinct configs' times over the optimum, in order of evaluation, and the run's seconds."""
        interface.Searchspace = lambda *_args, **_named: self.fresh()
        interface.util.read_cache = lambda *_args, **_named: self.cache
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # the generator its strategies use
        begin = time.perf_counter()
        results, _ = kernel_tuner.tune_kernel(
            **self.arguments,
            cache=str(self.stand_in),
            simulation_mode=True,
            strategy=strategy,
            strategy_options={"max_fevals": evaluations},
            quiet=True,
        )
        seconds = time.perf_counter() - begin
        names = self.cache["tune_params_keys"]
        seen: dict[tuple[Any, ...], float] = {}
        for result in results:
            seen.setdefault(tuple(result[name] for name in names), result["time"] / self.optimum)
        return list(seen.values()), seconds


def row(space: Space, strategy: str, seed: int) -> list[float]:
    """Return the best time over the optimum for each budget, then the configs and seconds of the largest budget."""
    found: list[float] = []
    seconds, at = 0.0, []
    for budget in BUDGETS:
        found, seconds = space.run(strategy, seed, budget)
        at.append(round(min(found[:budget]), 5))
    return [*at, len(found), round(seconds, 3)]


def write(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=1)
    text = re.sub(r"\[\s+[-+.\deE,\s]+\]", lambda match: " ".join(match[0].split()), text)
    beside = path.with_suffix(".part")
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="recorded spaces: Kernel Tuner cache files, *.json.gz")
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=100)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    version = importlib.metadata.version("kernel_tuner")
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "kernel_tuner": version,
        "numpy": np.__version__,
        "columns": [*(f"found/optimum at {budget}" for budget in BUDGETS), "evaluated", "seconds"],
        "runs": {},
    }
    if arguments.results.exists():
        kept = json.loads(arguments.results.read_text(encoding="utf-8"))
        if (kept.get("schema"), kept.get("kernel_tuner")) != (SCHEMA, version):
            raise SystemExit(f"{arguments.results} holds runs of another version; name another file")
        document = kept
    with tempfile.TemporaryDirectory() as folder:
        stand_in = Path(folder) / "cache.json"
        stand_in.write_text("{}", encoding="utf-8")
        collect(document, arguments, stand_in)


def collect(document: dict[str, Any], arguments: argparse.Namespace, stand_in: Path) -> None:
    spaces = [Space(path, stand_in) for path in sorted(arguments.folder.glob("*.json.gz"))]
    if not spaces:
        raise SystemExit(f"{arguments.folder} holds no recorded space (*.json.gz)")
    for seed in range(arguments.seeds):
        for space in spaces:
            for strategy in STRATEGIES:
                runs = document["runs"].setdefault(space.name, {}).setdefault(strategy, [])
                if len(runs) == seed:
                    runs.append(row(space, strategy, seed))
        write(arguments.results, document)
        print(f"seed {seed} done", flush=True)


if __name__ == "__main__":
    main()
