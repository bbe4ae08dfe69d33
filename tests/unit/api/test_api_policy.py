"""The first call of a key: what is measured, kept and reused, by processes of their own."""
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from silo.bundle.reader import open_bundle
from silo.commands.build_bundle import build_bundle
from silo.core.config import Config
from silo.kernels.collection import collect_kernels
from silo.launch.runtime import inspect_call
from silo.machine.device_plugins import device_named
from silo.machine.process_session import session
from silo.settings import override
from silo.tuner.ledger import Ledger
from silo.tuner.policy import Origin, TuneMode, read_effort
from silo.tuner.trial import Status, trials_to_record
from silo.tuning.case_tuning import case_studies

PROGRAM = Path(__file__).resolve().parents[3] / "tests" / "samples" / "api_program.py"


def run(home, n, mode=None, **variables):
    """What one process did."""
    environment = {**os.environ, "SILO_HOME": str(home), "SILO_TUNE_BUDGET": "30", **variables}
    command = [sys.executable, str(PROGRAM), str(n), *([mode] if mode else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A store in which one process tuned n = 5000."""
    home = tmp_path_factory.mktemp("policy") / "store"
    return home, run(home, 5000)


def test_the_first_call_tunes_says_so_once_and_counts_as_one_launch(tuned):
    _, first = tuned
    assert first["right"]
    assert first["measured"] == 3
    assert first["compiled"] == 3
    # A loaded machine also reports progress.
    (line,) = (message for message in first["messages"] if not message.startswith("tuning "))
    assert "tuned add_one[n~2^13]" in line
    assert "kept in the store" in line


def test_a_second_process_compiles_and_measures_nothing_also_in_a_moved_store(tuned, tmp_path):
    home, first = tuned
    moved = tmp_path / "elsewhere"
    shutil.copytree(home, moved)
    for place in (home, moved):
        again = run(place, 5000)
        assert again == {**first, "measured": 0, "compiled": 0, "messages": [], "origin": "bucket winner"}


def test_another_size_of_the_bucket_uses_its_winner(tuned):
    home, first = tuned
    other = run(home, 8008)  # like 5000 no multiple of 16: the same specialization, so the same study
    assert (other["measured"], other["config"], other["right"]) == (0, first["config"], True)


def test_cached_and_off_never_measure(tuned, tmp_path):
    home, first = tuned
    near = run(home, 100_008, SILO_TUNE="cached")
    assert (near["measured"], near["origin"], near["config"]) == (0, "dispatch rule", first["config"])
    empty = run(tmp_path / "empty", 5000, SILO_TUNE="cached")
    assert (empty["measured"], empty["origin"]) == (0, "first config")
    off = run(home, 5000, "off")  # the kernel's own mode comes before the setting
    assert (off["measured"], off["origin"], off["config"]) == (0, "first config", "BLOCK=256, num_warps=4")


def test_a_store_that_cannot_be_written_costs_one_warning(tmp_path):
    (tmp_path / "file").write_text("no folder")
    done = run(tmp_path / "file" / "store", 5000)
    assert done["right"]
    assert sum("cannot be written" in message or "in memory" in message for message in done["messages"]) == 1


@triton.jit
def planted(x, out, n, BLOCK: tl.constexpr, MODE: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if MODE == 1:
        tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
    elif MODE == 2:
        v = tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [i], tl.float32, is_pure=True, pack=1)
        tl.store(out + i, v, mask=i < n)
    else:
        tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


def test_wrong_and_broken_configs_never_win_and_are_kept_with_their_kind(tmp_path):
    # The first config is the base that others are compared with, since live calls have no expected values.
    with override(home=tmp_path / "store", tune="auto", tune_budget_s=30.0):
        kernel = silo.kernel(
            space=[{"MODE": 0, "BLOCK": 64}, {"MODE": 1, "BLOCK": 1024}, {"MODE": 2, "BLOCK": 512}],
            key=["n"],
            grid=lambda a: (silo.cdiv(a.n, a.BLOCK),),
        )(planted)
        x, out = np.arange(4000, dtype=np.float32), np.zeros(4000, dtype=np.float32)
        kernel(x, out, 4000)
        np.testing.assert_array_equal(out, x)
        text = kernel.explain(x, out, 4000)
        assert "MODE=1: wrong" in text
        assert "MODE=2: compile" in text
        assert sorted(kept_statuses()) == ["compile", "ok", "wrong"]


def kept_statuses():
    """The status of every trial in the store of the current settings."""
    records = session().store.records
    documents = [document for key in tuple(records.keys()) for document in records.read(key)]
    return [trial["status"] for document in documents for trial in document.get("trials", ())]


@triton.jit
def staged(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def test_a_space_of_one_config_is_used_as_a_refinement_of_it_was_measured(tmp_path):
    only, form = (Config.of(BLOCK=256, num_stages=stages) for stages in (3, 1))
    x = np.zeros(1000, np.float32)
    with override(home=tmp_path):
        grid = {"grid": lambda a: (silo.cdiv(a.n, a.BLOCK),)}
        staged_kernel = silo.kernel(space=[only], key=["n"], **grid)(staged).kernel
        resolver = staged_kernel.resolver
        situation = resolver.understand(inspect_call(resolver.native, staged_kernel.source.signature, x, x.size))
        assert resolver.decide(situation).reason == "the space has one config"
        problem = resolver.problem(situation)
        study = problem.study(situation.specialization, situation.bucket)
        trials = [study.failed(only, Status.RUN, "too much shared memory"), study.trial(form, Status.OK, [5] * 9)]
        problem.records.append(study.key, trials_to_record(trials))
        for mode in (TuneMode.AUTO, TuneMode.CACHED, TuneMode.FROZEN):
            decision = resolver.decide(situation, mode=mode)
            assert (decision.config, decision.origin) == (form, Origin.BUCKET)
        assert resolver.decide(situation, mode=TuneMode.OFF).config == only


@triton.jit
def tiled(x, n, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    for part in range(PARTS):
        i = (tl.program_id(0) * PARTS + part) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def test_a_first_call_of_another_size_measures_the_shortlist_that_measured_sizes_predict(tmp_path):
    space = {"BLOCK": [16, 64, 256, 1024], "PARTS": [1, 2, 4]}
    with override(home=tmp_path, tune="auto", tune_budget_s=60.0):
        grid = {"grid": lambda a: (silo.cdiv(a.n, a.BLOCK * a.PARTS),)}
        launch = silo.kernel(space=space, key=["n"], **grid)(tiled)
        kernel = launch.kernel
        for n in (
            1 << power for power in (6, 7, 8, 9, 10, 12, 13, 14, 15)
        ):  # made up: blocks of a sixteenth of the array are best
            situation = kernel.resolver.understand(
                inspect_call(kernel.resolver.native, kernel.source.signature, np.zeros(n, np.float32), n)
            )
            problem = kernel.resolver.problem(situation)
            study = problem.study(situation.specialization, situation.bucket)
            off = {
                Config.of(BLOCK=block, PARTS=parts): abs(math.log2(block * 16 / n)) + parts / 4
                for block, parts in itertools.product(*space.values())
            }
            trials = [study.trial(one, Status.OK, [round(1000 * (1 + steps))] * 9) for one, steps in off.items()]
            Ledger(study, problem.records).keep(trials)
        x = np.zeros(2048, np.float32)
        launch(x, x.size)
        assert (x == 1).all()
        situation = kernel.resolver.understand(inspect_call(kernel.resolver.native, kernel.source.signature, x, x.size))
        problem = kernel.resolver.problem(situation)
        tried = {trial.config for trial in problem.trials(situation.specialization, situation.bucket)}
        assert 2 <= len(tried) <= 5
        assert {one.as_dict()["BLOCK"] for one in tried} & {64, 256}
        effort = read_effort(problem.study(situation.specialization, situation.bucket), problem.records)
        assert effort.ended_early


STAGED = """
import silo
import triton
import triton.language as tl


@silo.kernel(space=[{"BLOCK": 256, "num_stages": 3}], key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def staged(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@staged.cases(n=[1000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host + 1})
"""


def test_a_bundle_holds_the_refinement_of_one_config_that_was_measured(tmp_path):
    path, output = tmp_path / "kernels.py", tmp_path / "k.silo"
    path.write_text(STAGED)

    def built():
        build_bundle([path], output, targets=["cpu"])
        with open_bundle(output) as bundle:
            return {str(one.artifact.variant.config) for one in bundle.contents().kernels[0].variants}

    with override(home=tmp_path / "home"):
        assert built() == {"BLOCK=256, num_stages=3"}
        (kernel,) = collect_kernels([path])
        (case,) = case_studies(kernel, device_named("cpu"))
        problem = kernel.resolver.problem(case.situation)
        study = problem.study(case.situation.specialization, case.bucket)
        good = [
            study.trial(Config.of(BLOCK=256, num_stages=stages), Status.OK, [time] * 9)
            for stages, time in ((3, 5), (1, 9))
        ]
        problem.records.append(study.key, trials_to_record(good))
        assert built() == {"BLOCK=256, num_stages=3"}
        failed = study.failed(good[0].config, Status.RUN, "too much shared memory")
        problem.records.append(study.key, trials_to_record([failed]))
        assert built() == {"BLOCK=256, num_stages=1"}
