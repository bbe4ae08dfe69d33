"""Sizes and GPU models that were not tuned: the config that trials of others predict, beside their own winners.

    python -m bench.tune.unseen [--record] [--measure] [--spaces FOLDER] [--json bench/results/tune-unseen.json]

``--record`` measures every config of the kernels of ``unseen_kernels.py`` at all of their sizes, on one thread of the
CPU, with an empty store, and keeps the times in the JSON file (about seven minutes). Without it the times in the file
are replayed: some sizes count as measured, two of them drawn at random (and once the two at the ends), the others in
the order that ``silo tune --suggest`` names. The rest are predicted, and a first call would find the best config of
their shortlist. ``--measure`` tunes seven of the nineteen sizes of the row kernel, from both ends, with the default
searcher in one store, and the other twelve in a second store. Then it makes a first call of each of the twelve with a
copy of the first store. The predicted config and the first call's config run beside the size's own winner, in pairs.
``--spaces`` is a folder of Kernel Tuner cache files: for each GPU model of a kernel with several models, it replays the
first eight measurements of a search that starts from the other models' trials.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.machine import describe, save
from bench.paired import median_interval

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "bench" / "tune" / "unseen_kernels.py"
RESULTS = ROOT / "bench" / "results" / "tune-unseen.json"

KERNELS_MEASURED = ("row_norm", "column_sum", "product", "row_softmax", "transposed", "row_most", "biased_gelu")
SIZES_MEASURED = {19: 7, 16: 6, 12: 5, 10: 4}  # number of a kernel's sizes: how many of them count as measured
STARTS = 12
SHORTLIST_ROWS = ("shortlist", "first three", "configs", "shown to lose")
ROUNDS = 60
EVALUATIONS = 8
GEOMEAN_BAR, WORST_BAR, MODEL_BAR = 1.03, 1.15, 1.05


def in_process(role: str, home: Path, *arguments: str) -> Any:  # returns JSON
    """Run one role of this file in a separate process with a store in ``home``; return the JSON that it printed."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    folders = {"SILO_HOME": str(home / "silo"), "TRITON_CACHE_DIR": str(home / "triton"), "SILO_THREADS": "1"}
    folders |= {"SILO_TUNE_BUDGET": "60"}  # seconds of a first call, so many that a loaded machine does not cut it
    command = [sys.executable, "-m", "bench.tune.unseen", "--role", role, *arguments]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, **folders}, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


# ---- Roles of the processes ----


def tune(kernel: str, searcher: str, sizes: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """Tune some sizes of a kernel (all if ``sizes`` is empty) in this process's store; return the times of each."""
    from silo.tuner.loss_model import Sample
    from silo.tuning.case_tuning import CaseLimits, case_studies, tune_case

    found: list[dict[str, Any]] = []
    for study in case_studies(_kernel(kernel), None):
        if sizes and list(study.bucket) not in [list(size) for size in sizes]:
            continue
        outcome, _ = tune_case(study, CaseLimits(searcher))
        sample = Sample.of_trials(study.bucket, outcome.trials)
        assert sample is not None
        times = {str(config): time for config, time in sample.times}
        found.append({"size": list(study.bucket), "winner": str(sample.winner), "times": times})
    return found


def predict(kernel: str) -> list[dict[str, Any]]:
    """Return for each size of the kernel the predicted config, the nearest size's config, and the expected loss."""
    from silo.core.dispatch import DispatchRules
    from silo.tuning.case_tuning import case_studies

    found: list[dict[str, Any]] = []
    for study in case_studies(_kernel(kernel), None):
        problem = study.kernel.resolver.problem(study.situation)
        learnt = problem.generalization(study.situation.specialization, study.situation.reach)
        assert learnt is not None
        expected = learnt.expect(study.bucket)
        nearest = DispatchRules.of(learnt.rules.key, dict(learnt.rules.rules), learnt.rules.fallback)
        found.append(
            {
                "size": list(study.bucket),
                "config": str(expected.config),
                "nearest": str(nearest.lookup(study.bucket).config),
                "expected_ppm": expected.regret_ppm,
                "reason": expected.reason,
            }
        )
    return found


def first_call(kernel: str, size: Sequence[int]) -> dict[str, Any]:
    """Return the config that a first call of a size finds with this store, and how many configs it measured."""
    from silo.tuning.case_tuning import call_arguments, case_studies

    study = next(study for study in case_studies(_kernel(kernel), None) if list(study.bucket) == list(size))
    study.kernel.launcher(**call_arguments(study.kernel, study.case))
    key, context = study.kernel.resolver.problem(study.situation), study.situation
    winner = key.winner(context.specialization, context.bucket)
    assert winner is not None
    trials = key.trials(context.specialization, context.bucket)
    return {"config": str(winner.config), "measured": len({trial.config for trial in trials})}


def pair(kernel: str, jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each job's size, run its configs in turns; return each config's time over the first config's."""
    import time

    from silo.tuning.case_tuning import call_arguments, case_studies

    studies = {tuple(study.bucket): study for study in case_studies(_kernel(kernel), None)}
    found: list[dict[str, Any]] = []
    for job in jobs:
        study = studies[tuple(job["size"])]
        named = call_arguments(study.kernel, study.case)
        launchers = [study.kernel.bind(**named, **_members(config)) for config in job["configs"]]

        def batch(launch: Any, count: int, named: dict[str, object] = named) -> float:
            begin = time.perf_counter()
            for _ in range(count):
                launch(**named)
            return (time.perf_counter() - begin) / count

        once = min(batch(launchers[0], 3) for _ in range(3))
        count = max(1, min(2000, int(0.004 / once)))
        rounds: list[list[float]] = []
        for number in range(ROUNDS):
            order = list(range(len(launchers)))
            order = order if number % 2 else order[::-1]
            taken = {at: batch(launchers[at], count) for at in order}
            rounds.append([taken[at] for at in range(len(launchers))])
        row = [median_interval([one[at] / one[0] for one in rounds], str(job["size"])) for at in range(len(launchers))]
        found.append({"size": job["size"], "ratios": [[one.median, one.low, one.high] for one in row]})
    return found


def _kernel(name: str) -> Any:
    from silo.kernels.collection import collect_kernels

    return next(iter(collect_kernels([KERNELS], [name])))


def _members(config: str) -> dict[str, int]:
    return {name: int(value) for name, value in (member.split("=") for member in config.split(", "))}


# ---- Replays ----


def samples_of(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """Return recorded times as samples of the loss model."""
    from silo.core.config import Config
    from silo.core.dispatch import bucket_of
    from silo.tuner.loss_model import Sample

    def config(text: str) -> Config:
        return Config.of(_members(text))

    return [
        Sample.of(bucket_of(row["size"]), config(row["winner"]), {config(one): ns for one, ns in row["times"].items()})
        for row in rows
    ]


def replay_sizes(rows: Sequence[dict[str, Any]], *, from_ends: bool = False) -> dict[str, list[list[float]]]:
    """Return the time over the winner's at each size that was not measured, by rule and by start.

    A start is two measured sizes, drawn at random or (``from_ends``) the first and the last in order. Further sizes are
    measured in the suggested order.
    """
    from silo.core.config import ConfigSet
    from silo.core.dispatch import DispatchRules
    from silo.tuner.generalization import generalize, suggest
    from silo.tuner.shortlist import shortlist

    samples = samples_of(rows)
    count = SIZES_MEASURED[len(samples)]
    key = [f"size{number}" for number in range(len(samples[0].bucket))]
    ratios: dict[str, list[list[float]]] = {rule: [] for rule in ("learnt", "nearest", "expected", *SHORTLIST_ROWS)}
    ordered = sorted(samples, key=lambda sample: tuple(sample.bucket))
    drawn = [random.Random(start).sample(samples, 2) for start in range(STARTS)]
    for start in [[ordered[0], ordered[-1]]] if from_ends else drawn:
        measured = list(start)
        while True:
            tried = ConfigSet(config for sample in measured for config, _ in sample.times)
            learnt = generalize(key, measured, measured[0].winner, tried.listed)
            if len(measured) == count:
                break
            wanted = [sample.bucket for sample in samples if sample not in measured]
            chosen = suggest(learnt, wanted, 1)[0].bucket
            measured.append(next(sample for sample in samples if sample.bucket == chosen))
        nearest = DispatchRules.of(key, {sample.bucket: sample.winner for sample in measured}, measured[0].winner)
        rest = [sample for sample in samples if sample not in measured]
        expected = [learnt.expect(sample.bucket) for sample in rest]
        predicted = [
            few for s in rest if (few := shortlist(learnt, s.bucket, len(s.times))) and few.held_out_ppm is not None
        ]
        assert len(predicted) == len(rest), "every recorded size has the times of all configs"
        rows_of_start = {
            "learnt": [_ratio(sample, [choice.config]) for sample, choice in zip(rest, expected, strict=True)],
            "nearest": [_ratio(sample, [nearest.lookup(sample.bucket).config]) for sample in rest],
            "expected": [1 + (choice.regret_ppm or 0) / 1e6 for choice in expected],
            "shortlist": [_ratio(sample, few.configs) for sample, few in zip(rest, predicted, strict=True)],
            "first three": [_ratio(sample, few.configs[:3]) for sample, few in zip(rest, predicted, strict=True)],
            "configs": [float(len(few.configs)) for few in predicted],
            "shown to lose": [1 + (few.held_out_ppm or 0) / 1e6 for few in predicted],
        }
        for rule, values in rows_of_start.items():
            ratios[rule].append(values)
    return ratios


def _ratio(sample: Any, configs: Sequence[Any]) -> float:  # takes a sample and configs
    """Return the time of the fastest of some configs over the winner's."""
    from silo.tuner.generalization import regret_ppm

    return 1 + min(regret_ppm(sample, config) for config in configs) / 1e6


def replay_models(folder: Path) -> dict[str, dict[str, list[float]]]:
    """Return the best time over the optimum after 1 to 8 measurements, for each space with others of its kernel.

    The search starts from the trials of GPU models of the same vendor only, because trials of another kind of target
    are no seeds (:func:`silo.tuner.seeds.differences`).
    """
    from silo.core.config import ConfigSet
    from silo.tuner.replay import RecordedSpace, replay_search
    from silo.tuner.search.searchers import make_searcher
    from silo.tuner.seeds import seeds

    spaces = {path.name.removesuffix(".json.gz"): RecordedSpace.load(path) for path in sorted(folder.glob("*.json.gz"))}
    best_ratios: dict[str, dict[str, list[float]]] = {}
    for name, space in spaces.items():
        others = [
            other
            for key, other in spaces.items()
            if key != name and key.split("-")[0] == name.split("-")[0] and _is_nvidia(other) == _is_nvidia(space)
        ]
        if not others:
            continue
        row: dict[str, list[float]] = {}
        near = [_neighbour(space, other) for other in others]
        for label, known in (("others' trials", near), ("alone", [])):
            chosen = seeds(ConfigSet(space.configs), known, limit=EVALUATIONS)
            searcher = make_searcher("auto", ConfigSet(space.configs), "seed 0", chosen)
            times = replay_search(space, searcher, EVALUATIONS, ahead=1)
            best = math.inf
            row[label] = []
            for time in times:
                best = best if time is None else min(best, time)
                row[label].append(round(best / space.best_average_ns, 4))
        best_ratios[name] = row
    return best_ratios


def _is_nvidia(space: Any) -> bool:  # takes a recorded space; devices without NVIDIA in their name are AMD's
    return "NVIDIA" in space.device


def _neighbour(space: Any, other: Any) -> Any:  # takes recorded spaces
    """Return the study of another recorded space with the losses of all of its configs."""
    from silo.tuner.loss_model import loss_ppm
    from silo.tuner.seeds import Neighbour, differences
    from silo.tuner.statistics import PPM

    best = round(other.best_average_ns)
    times = {config: other.outcomes[config.order_key].average_ns for config in other.configs}
    losses = {config: PPM if ns is None else loss_ppm(round(ns), best) for config, ns in times.items()}
    different = differences(space.study(), other.study())
    return Neighbour(other.study(), different, 24, configs=len(losses), losses=tuple(losses.items()))


def summary(ratios: Sequence[float]) -> dict[str, float]:
    """Return geometric mean, median, maximum, and the share of ratios up to 1.02."""
    return {
        "geomean": round(math.exp(statistics.fmean(map(math.log, ratios))), 4),
        "median": round(statistics.median(ratios), 4),
        "worst": round(max(ratios), 3),
        "within 2 %": round(sum(one <= 1.02 for one in ratios) / len(ratios), 2),
    }


def measured_row_kernel() -> dict[str, Any]:
    """Tune seven sizes of the row kernel in the suggested order, predict twelve, and run each beside its own winner."""
    kernel = "row_norm"
    with tempfile.TemporaryDirectory() as folder:
        home, other = Path(folder) / "some", Path(folder) / "all"
        own = {tuple(row["size"]): row["winner"] for row in in_process("tune", other, kernel, "auto", "[]")}
        sizes = sorted(own)
        chosen = [sizes[0], sizes[-1]]
        in_process("tune", home, kernel, "auto", json.dumps(chosen))
        while len(chosen) < SIZES_MEASURED[len(sizes)]:
            size = in_process("suggest", home, kernel)
            chosen.append(tuple(size))
            in_process("tune", home, kernel, "auto", json.dumps([size]))
        predicted = [row for row in in_process("predict", home, kernel) if tuple(row["size"]) not in chosen]
        jobs = [
            {"size": row["size"], "configs": [own[tuple(row["size"])], row["config"], row["nearest"]]}
            for row in predicted
        ]
        for job, row in zip(jobs, predicted, strict=True):
            copied = Path(folder) / "first"
            shutil.copytree(home, copied)
            row["first call"] = in_process("first_call", copied, kernel, json.dumps(row["size"]))
            job["configs"].append(row["first call"]["config"])
            shutil.rmtree(copied)
        pairs = in_process("pair", other, kernel, json.dumps(jobs))
    rows = [{**row, "own": job["configs"][0], **one} for row, job, one in zip(predicted, jobs, pairs, strict=True)]
    return {"measured": chosen, "rows": rows}


def suggested(kernel: str) -> list[int]:
    """Return the size of the case that is worth tuning next, by this process's store."""
    from silo.tuning.explanation import suggest_sizes

    return [int(value) for value in suggest_sizes(KERNELS, kernels=[kernel], count=1)[0].sizes[0].bucket]  # type: ignore[call-overload]


def main() -> None:
    """Replay, measure, print the figures, and write the JSON file."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tune.unseen", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--spaces", type=Path, default=os.environ.get("SEARCH_SPACES"))
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--role", choices=("tune", "predict", "first_call", "pair", "suggest"), help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        kernel, *rest = options.arguments
        print(json.dumps(_role(options.role, kernel, rest)))
        return
    document: dict[str, Any] = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    machine = document.pop("machine", None) or describe()
    if options.record:
        machine = describe()
        with tempfile.TemporaryDirectory() as folder:
            document["recorded"] = {
                kernel: in_process("tune", Path(folder), kernel, "exhaustive", "[]") for kernel in KERNELS_MEASURED
            }
    failed: list[str] = []
    document["sizes"] = {}
    for kernel, rows in document.get("recorded", {}).items():
        flat = {rule: [ratio for start in starts for ratio in start] for rule, starts in replay_sizes(rows).items()}
        document["sizes"][kernel] = {rule: summary(values) for rule, values in flat.items()}
        ends = replay_sizes(rows, from_ends=True)
        for rule in ("learnt", "shortlist"):
            document["sizes"][kernel][f"{rule} from both ends"] = summary(ends[rule][0])
        for rule, values in document["sizes"][kernel].items():
            print(f"{kernel}, {len(rows)} sizes, {SIZES_MEASURED[len(rows)]} measured, {rule}: {values}")
        # the bars are about the random starts; the start from both ends is only reported
        for rule in ("learnt", "shortlist"):
            figures = document["sizes"][kernel][rule]
            if figures["geomean"] > GEOMEAN_BAR or figures["worst"] > WORST_BAR:
                failed.append(f"{kernel} ({rule})")
    if options.measure:
        document["row kernel"] = {"machine": describe(), **measured_row_kernel()}
    for rule, at in (("learnt", 1), ("nearest", 2), ("first call", 3)) if "row kernel" in document else ():
        ratios = [row["ratios"][at][0] for row in document["row kernel"]["rows"] if at < len(row["ratios"])]
        if not ratios:  # a file recorded without first calls
            continue
        print(f"row kernel in pairs, {len(ratios)} sizes, {rule}: {summary(ratios)}")
        if rule != "nearest" and (summary(ratios)["geomean"] > GEOMEAN_BAR or max(ratios) > WORST_BAR):
            failed.append(f"row kernel in pairs ({rule})")
    if options.spaces:
        document["models"] = replay_models(Path(options.spaces))
        for name, row in document["models"].items():
            print(f"{name}: " + "; ".join(f"{label} {values[-1]:.3f}" for label, values in row.items()))
            if row["others' trials"][-1] > MODEL_BAR:
                failed.append(name)
    save(options.json, machine, document)
    if failed:
        sys.exit(f"over the bars ({GEOMEAN_BAR}, {WORST_BAR}, {MODEL_BAR}): {', '.join(failed)}")


def _role(role: str, kernel: str, rest: Sequence[str]) -> Any:  # returns JSON
    if role == "tune":
        return tune(kernel, rest[0], json.loads(rest[1]))
    if role == "predict":
        return predict(kernel)
    if role == "suggest":
        return suggested(kernel)
    if role == "first_call":
        return first_call(kernel, json.loads(rest[0]))
    return pair(kernel, json.loads(rest[0]))


if __name__ == "__main__":
    main()
