"""The benchmarks' own logic: statistics, pairing, rows, bars, restarts. No timings."""

import contextlib
import ctypes
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("numpy")

from bench import machine, paired  # numpy may be absent
from bench.cold_start import command as cold_start
from bench.launch import builds, report, run
from bench.launch import capture as launch_capture
from bench.launch import command as launch
from bench.launch.cases import BLOCK, CASES, GRID, Call, Case, select
from bench.launch.peers import AbsentError, Context, Row, nvidia, triton_own
from bench.launch.peers import ours as peers


def measured(wall, floor=None):
    count = len(wall)
    samples = {"wall": wall, "cpu": wall, "floor_wall": floor or [0.0] * count, "floor_cpu": floor or [0.0] * count}
    return {"label": "a row", "status": "measured", "samples": samples}


def case_of(key, **rows):
    named = {name.replace("_", "-"): row for name, row in rows.items()}
    return {"case": key, "rows": named, "seconds": 1.0, "how": "made up", "verified": {}}


# ---- statistics ----


def test_interval_brackets_the_median_and_is_the_same_every_time():
    samples = [float(value % 17) for value in range(200)]
    first = paired.median_interval(samples, "seed")
    assert first == paired.median_interval(samples, "seed")
    assert first.low <= first.median <= first.high
    assert first.low > 4
    assert first.high < 12


def test_interval_narrows_with_samples():
    few, many = ([float(value % 100) for value in range(0, 7 * count, 7)] for count in (10, 1000))
    wide, narrow = paired.median_interval(few), paired.median_interval(many)
    assert narrow.high - narrow.low < wide.high - wide.low


def test_no_samples_have_no_median():
    with pytest.raises(ValueError, match="no samples"):
        paired.median_interval([])


def test_drift_that_both_share_is_gone_from_the_differences():
    floor = [100.0, 200.0, 400.0]
    assert paired.differences([value + 30 for value in floor], floor) == [30.0, 30.0, 30.0]
    with pytest.raises(ValueError, match="argument 2"):
        paired.differences([1.0], floor)


# ---- cases and calls ----


def test_cases_have_the_promised_arguments():
    counts = {case.key: (case.pointers, case.integers, case.constexprs) for case in CASES}
    assert counts == {
        "0": (0, 0, 0),
        "1+0": (1, 0, 0),
        "5+3": (5, 3, 0),
        "12+8": (12, 8, 0),
        "58 positional": (14, 26, 18),
        "58 keyword": (14, 26, 18),
    }


def test_no_argument_is_folded_away_and_the_declared_grid_is_the_given_one():
    for case in CASES:
        values = case.integer_values()
        assert 1 not in values.values()
        if values:
            assert -(-values["n0"] // BLOCK) == GRID[0]


def test_kernels_take_the_arguments_of_their_cases():
    pytest.importorskip("triton")
    from bench.launch import nop_kernels

    for case in CASES:
        names = [*case.pointer_names, *case.integer_names, *case.constexpr_names]
        assert getattr(nop_kernels, case.kernel).arg_names == names


def test_calls_are_written_as_a_user_writes_them(tmp_path):
    empty = Context(Case("0", "nop_0"), tmp_path)
    assert empty.call("launch(stream, {arguments})").statement == "launch(stream)"
    assert empty.call("k[grid]({arguments})").statement == "k[grid]()"
    full = Context(Case("x", "nop", 1, 1, 1, keyword=True), tmp_path, tensors={"p0": "tensor"})
    call = full.call("k({arguments})", k="kernel")
    assert call.statement == "k(p0, n0, C0=C0)"
    assert dict(call.names) == {"p0": "tensor", "n0": 7168, "C0": 64, "k": "kernel"}
    assert full.call("k({arguments})", constexprs=False).statement == "k(p0, n0)"


def test_ptx_declares_exactly_the_parameters_and_targets_old_enough_a_device(tmp_path):
    text = Context(Case("x", "nop", 1, 2), tmp_path, capability=90).ptx.decode()
    assert ".entry nop(.param .u64 p0, .param .u32 n0, .param .u32 n1)" in text
    assert ".target sm_80" in text
    assert text.endswith("\0")
    assert ".target sm_75" in Context(Case("x", "nop"), tmp_path, capability=75).ptx.decode()


def test_select_keeps_the_known_order_and_refuses_the_unknown():
    assert select(["b", "a"], ["a", "b", "c"], "row") == ["a", "b"]
    assert select([], ["a", "b"], "row") == ["a", "b"]
    with pytest.raises(ValueError, match="no row 'x'; there are 'a', 'b'"):
        select(["x"], ["a", "b"], "row")


def test_names_of_rows_are_unique_and_bars_name_rows_and_cases_that_exist():
    names = launch.known_rows()
    assert len(names) == len(set(names))
    for bar in (*report.BARS, *report.STUB_BARS):
        assert bar.row in names
        assert bar.case in {case.key for case in CASES}
    assert {bar.row for bar in report.STUB_BARS} <= {row.name for row in run.all_rows(stub=True, fork=False)}
    assert run.all_rows(stub=False, fork=True) == (triton_own.FORK_ROW,)


def test_without_a_gpu_only_our_own_rows_are_measured():
    # The stub has no program of Triton's own.
    assert set(run.all_rows(stub=True, fork=False)) == {row for row in peers.ROWS if row.name != "silo-program"}


def test_a_peer_that_is_not_installed_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(AbsentError, match="cupy"):
        nvidia.cupy_raw(Context(CASES[0], tmp_path))


# ---- loops and rounds ----


def test_the_loop_runs_the_statement_as_often_as_asked():
    seen = []
    loop = run.loop_of(Call("call(a, b=b)", {"call": lambda a, b: seen.append((a, b)), "a": 1, "b": 2}))
    wall, cpu = loop(3)
    assert seen == [(1, 2)] * 3
    assert wall > 0
    assert cpu >= 0


def test_what_holds_around_a_row_holds_while_it_is_measured_alone():
    seen, on = [], []

    @contextlib.contextmanager
    def around():
        on.append(True)
        yield
        on.pop()

    loop = run.loop_of(Call("call()", {"call": lambda: seen.append(bool(on))}, around))
    loop(5)
    assert seen == [True] * (5 + run.FIRST)
    assert not on


def test_rounds_measure_each_row_once_right_after_the_floor():
    events = []

    def under(launches):
        events.append("floor")
        return 10 * launches, launches

    def row(name, cost):
        def loop(launches):
            events.append(name)
            return cost * launches, cost * launches

        return run.Measured(Row(name, name, None), loop)

    rows = [row("a", 15), row("b", 20)]
    run.measure(rows, under, rounds=3, burst=4, synchronize=lambda: None, failed=pytest.fail)
    assert len(events) == 4 * (3 + run.SKIPPED_ROUNDS)
    assert events[::2] == ["floor"] * (len(events) // 2)
    for number in range(0, len(events), 4):
        assert {events[number + 1], events[number + 3]} == {"a", "b"}
    assert rows[0].wall == [15.0] * 3
    assert rows[1].floor_wall == [10.0] * 3


def test_a_row_that_fails_in_a_round_leaves_the_others_alone():
    failures = []

    def broken(_launches):
        raise OSError("gone")

    good = run.Measured(Row("good", "", None), lambda launches: (launches, launches))
    bad = run.Measured(Row("bad", "", None), broken)
    run.measure(
        [good, bad],
        lambda launches: (launches, launches),
        rounds=2,
        burst=1,
        synchronize=lambda: None,
        failed=lambda row, error: failures.append((row.name, str(error))),
    )
    assert failures == [("bad", "gone")]
    assert len(good.wall) == 2


# ---- figures and bars ----


def test_figures_are_paired_with_the_floor_and_with_tritons_jit():
    cases = [
        case_of("5+3", silo=measured([130.0, 230.0, 430.0], [100.0, 200.0, 400.0]), triton_jit=measured([520.0] * 3))
    ]
    figures = report.summarize(cases)["5+3"]["silo"]
    assert figures.over_floor == paired.Estimate(30.0, 30.0, 30.0)
    assert figures.minimum == 130.0
    assert figures.over_floor_minimum == 30.0
    assert figures.to_jit.median == pytest.approx(230 / 520)


def test_bars_pass_fail_or_have_no_figure():
    cases = [case_of("5+3", silo=measured([390.0] * 3), silo_bound=measured([310.0] * 3))]
    bars = [
        report.Bar("5+3", "silo", "over_floor", 400),
        report.Bar("5+3", "silo-bound", "over_floor", 300),
        report.Bar("5+3", "silo", "to_jit", 0.25),
        report.Bar("12+8", "silo", "minimum", 800),
    ]
    verdicts = report.judge(report.summarize(cases), bars)
    assert [one.passed for one in verdicts] == [True, False, None, None]
    words = [line.split()[0] for line in report.verdict_lines(verdicts)[2:]]
    assert words == ["pass", "FAIL", "not", "not"]


def test_table_and_document_have_every_row_with_its_reason():
    absent = {"label": "cupy", "status": "absent", "reason": "No module named 'cupy'"}
    cases = [case_of("0", silo=measured([1.0, 2.0]), cupy=absent)]
    summary = report.summarize(cases)
    assert any("absent: No module named 'cupy'" in line for line in report.table(cases, summary))
    document = json.loads(json.dumps(report.document(cases, summary, [])))
    rows = document["cases"]["0"]["rows"]
    assert rows["cupy"]["reason"] == "No module named 'cupy'"
    assert rows["silo"]["figures"]["over_floor"]["median"] == 1.5


def test_the_fork_is_a_row_even_where_it_was_not_measured():
    cases = [case_of("0"), case_of("1+0")]
    other = [{"case": "0", "rows": {"triton-fork": measured([1.0])}}]
    launch.add_fork(cases, other, "not measured")
    assert cases[0]["rows"]["triton-fork"]["status"] == "measured"
    assert cases[1]["rows"]["triton-fork"] == {
        "label": triton_own.FORK_ROW.label,
        "status": "absent",
        "reason": "not measured",
    }


def test_the_node_of_a_graph_is_laid_out_as_the_driver_has_it():
    fields = launch_capture._KernelNode
    assert ctypes.sizeof(fields) == 72
    assert (fields.grid.offset, fields.block.offset, fields.shared.offset) == (8, 20, 32)


def test_what_is_kept_is_the_document_with_its_machine(tmp_path):
    document = {"samples": [1.5, -2e-07, 3], "words": ["a", "b"], "empty": [], "nested": [[1, 2], [3, 4]]}
    path = tmp_path / "new" / "results.json"
    machine.save(path, {"cpu": "x"}, document)
    text = path.read_text(encoding="utf-8")
    assert json.loads(text) == {"machine": {"cpu": "x"}, **document}
    assert "[ 1.5, -2e-07, 3 ]" in text


# ---- processes that crash ----


class Children:
    """Stands for ``subprocess.run``: each child finishes some cases and ends with a code at some row."""

    def __init__(self, folder, *plans):
        self.folder = folder
        self.plans = list(plans)
        self.commands = []

    def __call__(self, command, **_options):
        self.commands.append(command)
        done, now, code = self.plans.pop(0)
        with (self.folder / "cases.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"case": key, "rows": {}}) + "\n" for key in done)
        (self.folder / "now").write_text(now, encoding="utf-8")
        if code is None:
            raise subprocess.TimeoutExpired(command, 1)
        return SimpleNamespace(returncode=code)


def test_a_row_that_kills_the_process_is_left_out_of_the_next(tmp_path, monkeypatch):
    children = Children(tmp_path, (["0"], "5+3|cupy", -11), (["5+3"], "5+3|the rounds", 0))
    monkeypatch.setattr(subprocess, "run", children)
    cases, problems = launch.run_cases(tmp_path, ["0", "5+3"], [], {}, limit_s=10)
    assert [case["case"] for case in cases] == ["0", "5+3"]
    assert problems == ["5+3: cupy: exit -11"]
    assert children.commands[1][-4:] == ["--cases", "5+3", "--skip", "5+3|cupy"]


def test_a_case_that_cannot_start_is_given_up_and_the_others_are_measured(tmp_path, monkeypatch):
    children = Children(tmp_path, ([], "0|floor", 1), (["5+3"], "5+3|the rounds", 0))
    monkeypatch.setattr(subprocess, "run", children)
    cases, problems = launch.run_cases(tmp_path, ["0", "5+3"], [], {}, limit_s=10)
    assert [case["case"] for case in cases] == ["5+3"]
    assert problems == ["0: floor: exit 1"]


def test_running_out_of_time_keeps_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", Children(tmp_path, (["0"], "5+3|silo", None)))
    cases, problems = launch.run_cases(tmp_path, ["0", "5+3"], [], {}, limit_s=10)
    assert [case["case"] for case in cases] == ["0"]
    assert problems == ["5+3: silo: out of time"]


# ---- cold start ----


def test_cold_start_judges_medians_and_what_was_imported():
    def scenario(milliseconds, loaded=()):
        samples = [{"steps": {"first launch": value * 1e6}, "loaded": list(loaded)} for value in milliseconds]
        return {"samples": samples, "figures": cold_start.figures(samples)}

    scenarios = {"one": scenario([10, 19, 90]), "thousand": scenario([31, 32, 33])}
    verdicts = {one["bar"]: one["passed"] for one in cold_start.judge(scenarios)}
    assert verdicts["one: first launch at most 20 ms"] is True
    assert verdicts["thousand: first launch at most 30 ms"] is False
    assert verdicts["ten: first launch at most 20 ms"] is None
    assert verdicts["neither torch, Triton nor numpy imported"] is True
    scenarios["ten"] = scenario([1], loaded=["torch"])
    assert cold_start.judge(scenarios)[-1]["passed"] is False
    assert cold_start.judge(scenarios)[-1]["value"] == "torch"


def test_a_child_that_fails_is_an_error_with_its_last_words():
    command = [sys.executable, "-c", "raise SystemExit('no context')"]
    with pytest.raises(cold_start.ChildError, match="no context"):
        cold_start.sample(command, {})


# ---- two builds ----


class Build:
    """What a process of the bench answers, without one."""

    def __init__(self, name, cost, asked):
        self.name, self.cost, self.asked = name, cost, asked

    def ask(self, **question):
        self.asked.append((self.name, *question.values()))
        return self.cost


def test_two_builds_take_turns_and_each_begins_as_often():
    asked = []
    pair = (Build("other", 7.0, asked), Build("here", 9.0, asked))
    found = list(builds.measure(pair, "5+3", "silo", rounds=4, bursts=3, launches=100))
    assert found == [(7.0, 9.0)] * 4
    warm = builds.SKIPPED_BURSTS
    assert asked[:4] == [(one, *rest) for one in ("other", "here") for rest in (("5+3", "silo"), (warm, 100))]
    assert [name for name, *_ in asked[4:]] == ["other", "here", "here", "other"] * 2
