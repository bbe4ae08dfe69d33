"""The scaling benchmark's own logic: joining what processes measured, efficiencies, bars, the text of a round."""

import pytest

from bench.cpu.scaling import report
from bench.cpu.scaling.child import Round, summary, timed
from bench.cpu.scaling.row_names import ROWS, SHORT, SHOWN


def line(row, threads, right=True, ratio=None, **sides):
    made = {"row": row, "threads": threads, "error": 0.0, "right": right}
    made |= {side: {"us": us, "low": us, "high": us, "calls": 15} for side, us in sides.items()}
    return made if ratio is None else made | {"ratio": ratio}


def lines(side, times, **more):
    return [line("add", threads, **{side: us}, **more) for threads, us in times.items()]


def cells(silo, torch, both, right=True):
    turns = [line("add", n, right, ratio=a / b, silo=a, torch=b) for n, (a, b) in both.items()]
    same = {"silo_twice": lines("silo", silo), "team_twice": lines("silo", silo), "torch_twice": lines("torch", torch)}
    return report.cells(lines("silo", silo), lines("torch", torch), turns, **same)


def test_efficiency_is_the_time_of_one_thread_over_that_of_all():
    one, four = cells({1: 100.0, 4: 50.0}, {1: 80.0, 4: 20.0}, {1: (100.0, 80.0), 4: (60.0, 20.0)})
    assert (one.silo_efficiency, four.silo_efficiency) == (1.0, 0.5)
    assert four.torch_efficiency == 1.0
    assert four.ratio == 2.5
    assert four.turns_ratio == 3.0


def test_a_row_that_a_process_lacks_is_left_out():
    assert [cell.threads for cell in cells({1: 1.0, 2: 1.0}, {1: 1.0}, {1: (1.0, 1.0), 2: (1.0, 1.0)})] == [1]


def test_whose_threads_ran_the_launches_is_summed_over_processes_and_shown():
    one = line("add", 4, ratio=0.5, silo=10.0, torch=20.0) | {"picks": {"team_awake": 5}}
    other = line("add", 4, ratio=0.5, silo=10.0, torch=20.0) | {"picks": {"own_late": 40, "team_awake": 1}}
    turns = report.merged([[one], [other]])
    found = report.cells(lines("silo", {4: 9.0}), lines("torch", {4: 18.0}), turns)
    assert found[0].picks == {"team_awake": 6, "own_late": 40}
    assert "| own_late 40, team_awake 6 |" in report.table(found)


def failed(found):
    return [bar.what for bar in report.judge(found) if not bar.passed]


def test_bars_pass_where_all_is_well():
    assert failed(cells({1: 80.0, 4: 18.0}, {1: 100.0, 4: 30.0}, {1: (80.0, 100.0), 4: (19.0, 30.0)})) == []


def test_more_threads_may_not_be_slower():
    found = cells({1: 60.0, 4: 67.0}, {1: 100.0, 4: 110.0}, {1: (60.0, 100.0), 4: (67.0, 110.0)})
    assert failed(found) == ["add: 4 threads over 1, alone"]


def test_turns_and_wrong_rows_are_judged():
    said = failed(cells({1: 80.0, 4: 18.0}, {1: 100.0, 4: 30.0}, {1: (80.0, 100.0), 4: (60.0, 40.0)}, right=False))
    assert said == [
        "rows that are wrong",
        "4 threads in turns: geometric mean of 1 rows to torch",
        "turns over alone, dearest row: add",
        "turns over cold caches and the team, dearest row: add",
        "turns over alone, Silo, 4 threads, geometric mean",
        "turns over alone, torch, 4 threads, geometric mean",
        "turns over turns with itself, Silo, 4 threads, geometric mean",
        "turns over turns with itself, torch, 4 threads, geometric mean",
    ]


def test_a_long_row_may_lose_less_in_turns():
    found = cells({1: 8000.0, 4: 1800.0}, {1: 10000.0, 4: 3100.0}, {1: (8000.0, 10000.0), 4: (2016.0, 3150.0)})
    assert failed(found) == ["turns over alone, dearest row of a millisecond: add"]
    assert failed(cells({1: 800.0, 4: 180.0}, {1: 1000.0, 4: 310.0}, {1: (800.0, 1000.0), 4: (201.6, 315.0)})) == []


def test_a_row_far_over_the_others_time_is_named():
    found = cells({1: 80.0, 4: 70.0}, {1: 100.0, 4: 30.0}, {1: (80.0, 100.0), 4: (70.0, 30.0)})
    said = failed(found)
    assert "4 thread(s) alone: worst row to torch: add" in said
    assert "4 threads in turns: worst row to torch: add" in said


def test_without_turns_with_itself_their_bars_are_left_out():
    times = {1: 80.0, 4: 18.0}, {1: 100.0, 4: 30.0}
    turns = [line("add", n, ratio=0.8, silo=times[0][n], torch=times[1][n]) for n in (1, 4)]
    found = report.cells(lines("silo", times[0]), lines("torch", times[1]), turns)
    assert not [bar for bar in report.judge(found) if "itself" in bar.what or "cold" in bar.what]
    assert " - | - | - | - |" in report.table(found)


def test_a_row_in_turns_is_judged_by_its_slowest_time_without_torch_too():
    times = {1: 80.0, 4: 18.0}, {1: 100.0, 4: 30.0}
    turns = [line("add", n, ratio=0.6, silo=1.2 * times[0][n], torch=times[1][n]) for n in (1, 4)]

    def found(cold, team):
        same = {"silo_twice": lines("silo", cold), "team_twice": lines("silo", team)}
        return report.cells(lines("silo", times[0]), lines("torch", times[1]), turns, **same)

    one, four = found({1: 84.0, 4: 20.0}, {1: 70.0, 4: 10.0})
    assert [one.cold_cost, four.cold_cost] == [pytest.approx(96.0 / 84.0), pytest.approx(1.08)]
    assert (four.silo_twice, four.team_twice, four.torch_twice) == (20.0, 10.0, None)
    assert failed([one, four]) == ["turns over alone, dearest row: add"]
    assert "| 1.20 | 1.08 |" in report.page_table([one, four])
    assert [cell.cold_cost for cell in found({4: 9.0}, {4: 20.0})] == [pytest.approx(1.08)]
    assert [cell.cold_cost for cell in found({4: 9.0}, {4: 10.0})] == [pytest.approx(1.2)]


def test_a_page_gets_the_table_between_its_marks():
    found = cells({1: 80.0, 4: 18.0}, {1: 100.0, 4: 30.0}, {1: (80.0, 100.0), 4: (21.6, 27.0)})
    text = report.page_table(found)
    assert "| add | 0.80 | 0.60 | 0.80 | 21.6 | 1.20 | 1.20 |" in text.splitlines()
    assert "| add |" not in report.page_table(found, ["another"])
    assert "geometric mean of 1 rows" in report.page_table(found, ["another"])
    page = f"before\n{report.BEGIN}old\n{report.END}after\n"
    assert report.updated(page, text) == f"before\n{report.BEGIN}{text}\n\n{report.END}after\n"
    with pytest.raises(ValueError, match="lacks the lines"):
        report.updated("no marks", text)


def test_tables_have_a_line_for_each():
    found = cells({1: 80.0, 4: 25.0}, {1: 100.0, 4: 30.0}, {1: (80.0, 100.0), 4: (26.0, 30.0)})
    text = report.table(found).splitlines()
    assert len(text) == 4
    assert len({row.count("|") for row in text}) == 1
    sweep = [
        {"called": "alone", "pool": pool, "spin": 50, **line("add", n, silo=3.0)}
        for pool in ("own", "auto")
        for n in (1, 4)
    ]
    assert len(report.sweep_table(sweep, (1, 4)).splitlines()) == 4


def test_a_round_travels_as_text():
    asked = Round(("silo", "torch"), (1, 2), ("add 10,000",), 0.5, 100.0)
    assert Round.from_json(asked.to_json()) == asked


def test_sides_take_turns_and_each_call_is_a_sample():
    said = []
    first, second = timed([lambda: said.append("a"), lambda: said.append("b")], 0.0, 0.0)
    assert said == ["a", "b"] * 15
    assert len(first) == len(second) == 15


def test_a_summary_is_a_median_with_quartiles():
    assert summary([4.0, 1.0, 3.0, 2.0, 5.0]) == {"us": 3.0, "low": 2.0, "high": 4.0, "calls": 5}


def test_the_names_are_those_of_the_rows():
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
    from bench.cpu.scaling import rows

    assert tuple(rows.ROWS) == ROWS
    assert set(SHORT) <= set(ROWS)
    assert set(SHOWN) <= set(ROWS)


def test_processes_are_merged_by_their_medians():
    def lines(us, ratio, *, right=True):
        side = {"us": us, "low": us, "high": us, "calls": 20}
        return [{"row": "add", "threads": 2, "right": right, "silo": side, "torch": side, "ratio": ratio}]

    (one,) = report.merged([lines(1.0, 0.5), lines(9.0, 0.7), lines(2.0, 0.6, right=False)])
    assert (one["silo"]["us"], one["torch"]["us"], one["ratio"], one["right"]) == (2.0, 2.0, 0.6, False)
    other = [{**lines(1.0, 0.5)[0], "threads": 4}]
    with pytest.raises(ValueError, match="each another row"):
        report.merged([lines(1.0, 0.5), other])
