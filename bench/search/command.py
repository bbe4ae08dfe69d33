"""Searches on recorded spaces: Silo's searcher beside Kernel Tuner's strategies.

    python -m bench.search FOLDER [--json bench/results/search.json] [--page docs/searchers.md]

FOLDER (or SEARCH_SPACES) holds Kernel Tuner cache files, one ``*.json.gz`` for each space; without it nothing is run.
Runs of Kernel Tuner come from ``bench/results/search-rivals.json``, which ``bench.search.rivals`` makes. For both
sides, the time of a config is its average in the file, and the optimum is the least of these. Silo's searcher proposes
some configs before the outcomes of earlier ones are known, as in a session. It is run anew for each budget, because it
adapts to the end of the budget.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.machine import describe, save
from bench.search import report
from silo.core.config import ConfigSet
from silo.tuner.replay import RecordedSpace, replay_search
from silo.tuner.search.searchers import DEFAULT_SEARCHER, check_searcher, make_searcher

RIVALS = Path(__file__).parents[1] / "results" / "search-rivals.json"


def run(space: RecordedSpace, searcher: str, seed: int, budget: int, ahead: int | None) -> list[float]:
    """Return the best time found divided by the optimum, and the CPU seconds that the search took."""
    begin = time.process_time()
    configs = ConfigSet(space.configs)
    asked = make_searcher(searcher, configs, f"seed {seed}", evaluations=budget)
    times = replay_search(space, asked, budget, ahead=ahead)
    seconds = time.process_time() - begin
    best = min((time_ns for time_ns in times if time_ns is not None), default=float("inf"))
    return [round(best / space.best_average_ns, 5), round(seconds, 3)]


def main() -> None:
    """Run the searches, print the tables, and write the JSON file and the page."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=os.environ.get("SEARCH_SPACES"))
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--searcher", default=DEFAULT_SEARCHER)
    parser.add_argument(
        "--ahead", type=int, help="configs suggested before their outcomes are known; default: a session's"
    )
    parser.add_argument("--spaces", nargs="+", help="only those whose name holds one of these words")
    parser.add_argument("--json", type=Path, help="where to keep the results; runs that it holds are not repeated")
    parser.add_argument("--page", type=Path, help="the page of the documentation whose tables to bring up to date")
    options = parser.parse_args()
    check_searcher(options.searcher)
    paths = sorted(Path(options.folder).glob("*.json.gz")) if options.folder else []
    paths = [path for path in paths if not options.spaces or any(word in path.name for word in options.spaces)]
    if not paths:
        sys.exit(f"skipped: no recorded space (*.json.gz) in {options.folder or 'SEARCH_SPACES'}")
    rivals = json.loads(RIVALS.read_text(encoding="utf-8"))
    document: dict[str, Any] = {
        "schema": report.SCHEMA,
        "searcher": options.searcher,
        "ahead": options.ahead or "a session's",
    }
    document |= {"columns": ["found/optimum", "CPU seconds"], "hidden": {}, "counted": {}}
    if options.json and options.json.exists():
        kept = json.loads(options.json.read_text(encoding="utf-8"))
        same = ("schema", "searcher", "ahead")
        if [kept.get(name) for name in same] != [document[name] for name in same]:
            sys.exit(f"{options.json} holds runs of another kind; name another file")
        document = kept
    machine = describe()
    wholes = {path.name.removesuffix(".json.gz"): RecordedSpace.load(path) for path in paths}
    worked = {name: space.without_failures() for name, space in wholes.items()}
    failing = {name: space for name, space in wholes.items() if len(worked[name].configs) < len(space.configs)}
    for kind, spaces in (("hidden", worked), ("counted", failing)):
        for budget in report.BUDGETS:
            for name, space in spaces.items():
                runs = document[kind].setdefault(name, {}).setdefault(str(budget), [])
                while len(runs) < options.seeds:
                    runs.append(run(space, options.searcher, len(runs), budget, options.ahead))
                    if options.json and len(runs) % 10 in {0, options.seeds % 10}:
                        save(options.json, machine, {key: value for key, value in document.items() if key != "machine"})
                print(f"{kind} {name} {budget}: {report.mean(runs):.3f}", flush=True)
    tables = report.markdown(document, rivals)
    print(tables)
    if options.page:
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(report.updated(page, tables), encoding="utf-8")
    if failed := [
        f"{verdict.space} ({verdict.budget})" for verdict in report.judge(document, rivals) if not verdict.passed
    ]:
        sys.exit(f"behind the best rival: {', '.join(failed)}")
