"""A combo of three sub-kernels, two of them equal: tuned at a call and by command, kept, locked, bundled."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="compiles Triton kernels")

import triton
import triton.language as tl

import silo
from silo import heuristics
from silo.commands.build_bundle import build_bundle
from silo.commands.tune_cases import tune_path
from silo.core import grids
from silo.core.config import Config
from silo.core.device import Target
from silo.core.grids import Part
from silo.core.grouped_space import GroupedSpace
from silo.errors import SpaceError, TuneError
from silo.heuristics import KernelFacts, TuningEffort
from silo.kernels.collection import collect_kernels
from silo.launch.runtime import inspect_call
from silo.machine.process_session import session
from silo.settings import override
from silo.tuner.ledger import read_trials, studies_of
from silo.tuning.explanation import explain_tuning

FILE = Path(__file__).resolve().parents[3] / "examples" / "combo.py"
# Choices of the sum's blocks and of the two scales' (together), for the sizes of the example's case.
CHOICES = (6, 2)
EFFORT = 1 + sum(count - 1 for count in CHOICES)
SIZES = {"n": 100_000, "rows": 300, "columns": 1000}

SECOND = """
import json, sys, importlib.util
import numpy as np
from silo.building import compilation
from silo.calls import first_call

def never(*args, **kwargs):
    raise AssertionError("nothing is to be measured or compiled")

first_call.tune = compilation.Compilation._submit = never
spec = importlib.util.spec_from_file_location("combo", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
kernel, n, rows, columns = module.scales_and_sums, *map(int, sys.argv[2:])
a, b, m = (np.ones(shape, np.float32) for shape in (n, n, (rows, columns)))
doubled, halved, sums = np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros(rows, np.float32)
args = (a, doubled, b, halved, m, sums, n, rows, columns)
kernel(*args)
right = (doubled == 2).all() and (halved == 0.5).all() and (sums == columns).all()
print(json.dumps([kernel.explain(*args), bool(right)]))
"""


def second_process(home, **variables):
    environment = {**os.environ, "SILO_HOME": str(home), **variables}
    command = [sys.executable, "-c", SECOND, str(FILE), *map(str, SIZES.values())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def example():
    (kernel,) = collect_kernels([FILE], None)
    return kernel


def arguments(n, rows, columns):
    chance = np.random.default_rng(7)
    a, b, m = (chance.random(shape, np.float32) for shape in (n, n, (rows, columns)))
    outs = np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros(rows, np.float32)
    return (a, outs[0], b, outs[1], m, outs[2], n, rows, columns)


def check(args):
    a, doubled, b, halved, m, sums = args[:6]
    np.testing.assert_array_equal(doubled, a * 2)
    np.testing.assert_array_equal(halved, b / 2)
    np.testing.assert_allclose(sums, m.sum(1), rtol=1e-5)


def understand(kernel, *args, **kwargs):
    return kernel.resolver.understand(inspect_call(kernel.resolver.native, kernel.source.signature, *args, **kwargs))


def kept_trials():
    records = session().store.records
    return [trial for study in studies_of("scales_and_sums", records) for trial in read_trials(study, records)]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A store in which ``silo tune --lock`` went through the example's case, and the lock."""
    folder = tmp_path_factory.mktemp("combo")
    home, lock = folder / "store", folder / "silo.lock.json"
    with override(home=home):
        (row,) = tune_path(FILE, lock=lock)
    return home, lock, row


def test_the_command_measures_a_sum_of_configs_and_again_none(tuned):
    home, lock, row = tuned
    assert 2 < row.measured <= EFFORT
    assert (row.reused, row.failures) == (0, {})
    with override(home=home):
        (again,) = tune_path(FILE, lock=lock)
        ((_, explanation),) = explain_tuning(FILE)
    assert (again.measured, again.reused, again.winner, again.locked) == (0, row.measured, row.winner, row.winner)
    assert explanation.new == ()
    assert str(explanation.winner.config) == row.winner
    members = dict(one.split("=") for one in row.winner.split(", "))
    assert members["XBLOCK_0"] == members["XBLOCK_1"], "equal sub-kernels are one group"


def test_another_process_measures_nothing_and_launches_the_winner(tuned):
    home, lock, row = tuned
    for variables in ({"SILO_TUNE": "auto"}, {"SILO_TUNE": "frozen", "SILO_LOCK": str(lock)}):
        text, right = second_process(home, **variables)
        assert right
        assert f"config: {row.winner} (" in text


def test_another_size_gets_the_winner_by_rule(tuned):
    home, _, row = tuned
    with override(home=home, tune="cached"):
        kernel = example()
        decision = kernel.resolver.decide(understand(kernel, *arguments(200_000, 300, 1000)))
    assert (str(decision.config), decision.origin.value) == (row.winner, "dispatch rule")


def test_a_winner_gets_into_a_bundle(tuned, tmp_path):
    home, _, row = tuned
    with override(home=home):
        before = len(kept_trials())
        summary = build_bundle([FILE], tmp_path / "combo.silo", targets=["cpu"])
        assert len(kept_trials()) == before
        assert [(one.choice, one.measured) for one in summary.rows] == [(row.winner, "measured")]
        kernels = silo.load(tmp_path / "combo.silo")
        args = arguments(**SIZES)
        kernels.scales_and_sums(*args)
        check(args)


def test_the_first_call_tunes_group_by_group(tmp_path):
    args = arguments(5000, 64, 300)
    with override(home=tmp_path / "store", tune="auto", tune_budget_s=60.0):
        kernel = example()
        kernel.launcher(*args)
        check(args)
        trials = kept_trials()
        situation = understand(kernel, *args)
        assert isinstance(situation.searched, GroupedSpace)
        tried = {trial.config for trial in trials}
        assert situation.candidates[0] in tried
        assert len(tried) <= situation.searched.effort < len(situation.searched.product())
        assert all(config in situation.searched for config in tried)
        again = example()
        again.launcher(*args)
        check(args)
        assert len(kept_trials()) == len(trials)
        text = again.explain(*args)
        assert "(bucket winner: measured for this bucket)" in text
        assert "a combo of 3 sub-kernels for cpu" in text
        assert "group of 0, 1:" in text
        assert text.count("times the winner's time") >= 1


def test_a_search_stopped_by_its_budget_goes_on(tuned, tmp_path):
    shutil.copytree(tuned[0], tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "records")  # what is compiled stays
    with override(home=tmp_path / "store"):
        (first,) = tune_path(FILE, evaluations=2)
        (second,) = tune_path(FILE)
        assert first.measured == 2
        assert (second.reused, second.measured) == (2, second.measured)
        assert 2 + second.measured <= EFFORT
        with pytest.raises(TuneError, match="unknown searcher"):
            tune_path(FILE, searcher="by-group")


def test_what_a_call_sets_is_kept(tmp_path):
    args = arguments(5000, 64, 300)
    with override(home=tmp_path / "store", tune="cached"):
        kernel = example()
        given = understand(kernel, *args, XBLOCK_0=64, R0_BLOCK_2=64)
        assert given.candidates[0].as_dict()["XBLOCK_0"] == 64
        assert all(config.as_dict()["R0_BLOCK_2"] == 64 for config in given.searched.product())
        kernel.launcher(*args, XBLOCK_0=64, R0_BLOCK_2=64)
        check(args)


def test_deterministic_mode_never_lets_times_decide_about_sums():
    args = arguments(5000, 64, 300)
    with override(deterministic=True):
        situation = understand(example(), *args)
        assert situation.candidates == (situation.searched.listed[0],)
        assert "the order of summing may be another" in " ".join(situation.left_out.values())
        pair = silo.kernel(space=heuristics.combo_space([COPY, COPY]), grid=lambda a: (silo.cdiv(a.n, a.XBLOCK),))(copy)
        x, y = np.arange(3000, dtype=np.float32), np.zeros(3000, np.float32)
        free = understand(pair.kernel, x, y, 3000)
        assert len(free.candidates) > 1
        assert not free.left_out


def test_other_targets_have_warps_and_stages_as_a_group():
    situation = understand(example(), *arguments(5000, 64, 300))
    found = situation.candidates_on(Target.parse("cuda:sm_90"), {})
    assert {"num_warps", "num_stages"} <= set(found[0].as_dict())
    assert len({(one.as_dict()["num_warps"], one.as_dict()["num_stages"]) for one in found}) > 1
    assert len({one.as_dict()["XBLOCK_0"] for one in found}) > 1


@triton.jit
def rows_and_copy(
    x, sums, src, dst, rows, columns, n, ROWS: tl.constexpr, R0_BLOCK_0: tl.constexpr, XBLOCK: tl.constexpr
):
    program = tl.program_id(0)
    first = tl.cdiv(rows, ROWS)
    if program < first:
        row = program * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, R0_BLOCK_0)
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        v = tl.load(x + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
        tl.store(sums + row, tl.sum(v, 1), mask=row < rows)
    else:
        i = (program - first) * XBLOCK + tl.arange(0, XBLOCK)
        tl.store(dst + i, tl.load(src + i, mask=i < n), mask=i < n)


@triton.jit
def copy(src, dst, n, XBLOCK: tl.constexpr):
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(dst + i, tl.load(src + i, mask=i < n), mask=i < n)


ROWS = heuristics.space(
    "persistent_reduction", {"x": "rows", "r": "columns"}, names={"XBLOCK": "ROWS"}, facts=KernelFacts(reductions=1)
)
COPY = heuristics.space("pointwise", {"x": "n"})


def programs(a):
    return (silo.cdiv(a.rows, a.ROWS) + silo.cdiv(a.n, a.XBLOCK),)


def test_own_names_shared_blocks_and_whole_rows(tmp_path):
    space = heuristics.combo_space([ROWS, COPY], effort=TuningEffort(exhaustive=True))
    kernel = silo.kernel(space=space, grid=programs, constraints=[lambda c: c.ROWS <= c.XBLOCK])(rows_and_copy)
    x, src = np.ones((40, 100), np.float32), np.arange(3000, dtype=np.float32)
    sums, dst = np.zeros(40, np.float32), np.zeros(3000, np.float32)
    args = (x, sums, src, dst, 40, 100, 3000)
    with override(home=tmp_path / "store", tune="cached"):
        found = understand(kernel.kernel, *args)
        assert found.candidates[0].as_dict()["R0_BLOCK_0"] == 128
        assert set(found.candidates[0].as_dict()) == {"ROWS", "R0_BLOCK_0", "XBLOCK"}
        assert {one.as_dict()["R0_BLOCK_0"] for one in found.searched.product()} == {128}
        assert all(one.as_dict()["ROWS"] <= one.as_dict()["XBLOCK"] for one in found.searched.product())
        assert len({one.as_dict()["ROWS"] for one in found.candidates}) > 1
        assert kernel.kernel.key == ("rows", "columns", "n")
        kernel(*args)
        assert (sums == 100).all()
        assert (dst == src).all()
    assert dict(kernel.kernel.rule.needed).keys() == {"R0_BLOCK_0"}


def test_a_space_of_groups_of_one_s_own(tmp_path):
    rows = tuple(Config.of(ROWS=rows) for rows in (4, 8))
    blocks = tuple(Config.of(XBLOCK=block) for block in (128, 256))
    space = GroupedSpace(Config.of(ROWS=4, XBLOCK=128, R0_BLOCK_0=128), (rows, blocks))
    kernel = silo.kernel(
        space=space,
        key=["n"],
        constraints=[lambda c: c.n >= c.ROWS * c.XBLOCK],
        grid=programs,
    )(rows_and_copy)
    x, src = np.ones((40, 100), np.float32), np.arange(3000, dtype=np.float32)
    sums, dst = np.zeros(40, np.float32), np.zeros(3000, np.float32)
    args = (x, sums, src, dst, 40, 100, 3000)
    with override(home=tmp_path / "store", tune="auto", tune_budget_s=60.0):
        kernel(*args)
        assert (sums == 100).all()
        assert (dst == src).all()
        problem = kernel.kernel.resolver.problem(understand(kernel.kernel, *args))
        (study,) = problem.known()
        tried = {str(trial.config) for trial in read_trials(study, problem.records)}
        assert len(tried) == 3
    small = understand(kernel.kernel, *args[:-1], 512)
    assert [one.as_dict()["ROWS"] * one.as_dict()["XBLOCK"] for one in small.searched.product()] == [512]
    with pytest.raises(SpaceError, match="the space sets 'COLS', which is neither"):
        silo.kernel(space=GroupedSpace(Config.of(COLS=4), ((Config.of(COLS=4),),)))(rows_and_copy)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: heuristics.combo_space([]), "without sub-kernels"),
        (
            lambda: heuristics.combo_space([heuristics.space("split_scan", {"x": 1, "r": "n"})]),
            "0 .* split_scan; it is",
        ),
        (
            lambda: heuristics.combo_space([COPY, heuristics.space("pointwise", {"x": 1}, constants={"A": 1})]),
            "1 .* has",
        ),
        (lambda: silo.kernel(space=heuristics.combo_space([COPY, COPY]))(triton.jit(lambda_free)), "sets XBLOCK"),
        (
            lambda: silo.kernel(space=heuristics.combo_space([heuristics.space("pointwise", {"x": "m"})]))(
                rows_and_copy
            ),
            "'m' is not a scalar parameter",
        ),
        (
            lambda: silo.kernel(space=heuristics.combo_space([ROWS, COPY]), key=["n"])(rows_and_copy),
            "the combo heuristic reads rows, columns, which the key lacks",
        ),
    ],
)
def test_what_is_refused_before_anything_is_compiled(make, message):
    with pytest.raises(SpaceError, match=message):
        make()


def lambda_free(src, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(src + i, 0, mask=i < n)


def test_the_grid_of_the_example_counts_every_part():
    grid = grids.flattened_combo([Part("n"), Part("n"), Part("rows")])
    assert grid.dimensions({"n": 100, "rows": 7}, {"XBLOCK_0": 64, "XBLOCK_1": 32, "XBLOCK_2": 2}) == (2 + 4 + 4, 1, 1)
