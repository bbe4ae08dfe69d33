"""The search benchmark's own logic: verdicts and tables from runs. No searches, no timings."""

import json
from pathlib import Path

import pytest

pytest.importorskip("numpy")

ROOT = Path(__file__).resolve().parents[3]

from bench.search import report  # noqa: E402  # numpy may be absent


def runs(*at_50):
    """Of a rival: figures of all budgets in one row."""
    return [[2.0, found, 1.0, 100, 0.5] for found in at_50]


def own(*at_50):
    return {"25": [[2.0, 0.1]], "50": [[found, 0.2] for found in at_50], "100": [[1.0, 0.3]]}


def document(**spaces):
    return {"searcher": "auto", "ahead": 8, "hidden": spaces, "counted": {"b": own(1.25, 1.25)}}


RIVALS = {
    "kernel_tuner": "1.4.0",
    "runs": {
        "a": {"pso": runs(*[1.10] * 9, 1.1), "genetic": runs(*[1.3] * 10), "random_sample": runs(*[1.4] * 10)},
        "b": {"pso": runs(*[1.5] * 10), "genetic": runs(*[1.2] * 10), "random_sample": runs(*[1.9] * 10)},
    },
}


def verdict(ours, space="a"):
    (_, found, _) = report.judge(document(**{space: own(*ours)}), RIVALS)
    return found


def test_each_space_is_judged_against_its_own_best_rival_at_each_budget():
    found = report.judge(document(a=own(*[1.0] * 10), b=own(*[1.0] * 10)), RIVALS)
    assert [one.budget for one in found] == [25, 50, 100] * 2
    assert [(one.rival, pytest.approx(one.theirs)) for one in found if one.budget == 50] == [
        ("pso", 1.10),
        ("genetic", 1.2),
    ]
    assert [one.rival_worst for one in found if one.budget == 50] == [1.3, 1.5]


@pytest.mark.parametrize(
    ("ours", "words", "passed"),
    [
        ([1.05] * 10, "better", True),
        ([1.10] * 10, "as good", True),
        ([1.115] * 10, "as good", True),  # within the slack
        ([1.125] * 10, "worse", False),
        ([1.0] * 5 + [1.3] * 5, "as good", True),  # nobody can tell
        ([1.0] * 9 + [1.31], "worse", False),  # its worst run is worse than the rivals' median of these
    ],
)
def test_verdicts(ours, words, passed):
    assert (verdict(ours).words, verdict(ours).passed) == (words, passed)


def test_the_interval_is_that_of_means_and_repeats():
    low, high = report.difference_interval([1.0, 1.1, 1.2] * 10, [1.5, 1.6, 1.7] * 10, "x")
    assert low < -0.5 < high
    assert -0.75 < low < high < -0.25
    assert (low, high) == report.difference_interval([1.0, 1.1, 1.2] * 10, [1.5, 1.6, 1.7] * 10, "x")


def test_tables():
    text = report.markdown(document(a=own(1.0, 1.0, 1.2)), RIVALS)
    assert "| a | 50 | 1.067 | pso | 1.100 | -0.033 (" in text
    assert "| 1.20 | 1.30 | as good |" in text
    assert "| a | 2.000 / 1.067 / 1.000 | 2.000 / 1.100 / 1.000 | 2.000 / 1.300 / 1.000 |" in text
    assert "| b | 2.000 / 1.250 / 1.000 | 1.00 |" in text
    assert "Silo 0.10 for 25, Silo 0.20 for 50, Silo 0.30 for 100 evaluations. For 100" in text
    assert "pso 0.50, genetic 0.50" in text


def test_the_page_is_brought_up_to_date():
    page = f"before\n{report.BEGIN}old{report.END}after\n"
    assert report.updated(page, "new\n") == f"before\n{report.BEGIN}new\n{report.END}after\n"
    with pytest.raises(ValueError, match="lacks the lines"):
        report.updated("before", "new")


def test_the_rivals_file_holds_what_the_tables_say():
    kept = json.loads((ROOT / "bench" / "results" / "search-rivals.json").read_text(encoding="utf-8"))
    assert kept["kernel_tuner"] == "1.4.0"
    assert kept["columns"][:3] == [f"found/optimum at {budget}" for budget in report.BUDGETS]
    for strategies in kept["runs"].values():
        assert {"adaptive_tabu_greywolf", "hybrid_vndx"} < strategies.keys()
        assert len(strategies) == 6
        assert all(len(found) >= 50 for found in strategies.values())
        assert all(min(one[:3]) >= 1 for found in strategies.values() for one in found)
