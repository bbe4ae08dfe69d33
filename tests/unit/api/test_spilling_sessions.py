"""Spilling configs in real sessions on the CPU, whose code never spills: here it says that it does."""

import json

import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

from silo.commands.tune_cases import tune_path
from silo.measuring.evaluators import BenchEvaluator
from silo.report.kernel_pages import kernel_page, study_report
from silo.settings import override
from silo.tuning.explanation import explain_tuning
from silo.tuning.stored_studies import kept_studies
from tuning_samples import HEAD, ROW_SUMS

HEURISTIC = 'space=heuristics.space("reduction", {"x": "m", "r": "n"})'
LISTED = 'space=[{"XBLOCK": x, "R0_BLOCK": 64} for x in (4, 16, 32)], key=["m"]'


def spilled(_self, config):
    """Configs of many elements spill."""
    members = config.as_dict()
    size = members["XBLOCK"] * members["R0_BLOCK"]
    return size // 32 if size > 512 else 0


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(BenchEvaluator, "spills", spilled)

    def written(space):
        path = tmp_path / "kernels.py"
        path.write_text(HEAD + ROW_SUMS.replace("SPACE", space))
        return path

    with override(home=tmp_path / "home", jobs=2):
        yield written


def test_a_heuristics_configs_are_set_aside_and_it_is_shown_everywhere(file, monkeypatch):
    path = file(HEURISTIC)
    (row,) = tune_path(path)
    (remark,) = row.remarks
    assert remark == (
        "3 of 6 configs spill 32 to 128 values a thread to local memory (above 16): 1 measured last, 2 set aside"
    )
    assert (row.winner is not None, row.failures) == (True, {})

    ((_, explained),) = explain_tuning(path)
    assert (len(explained.known), explained.new, len(explained.aside)) == (row.measured, (), 2)
    assert explained.text.count("is set aside: ") == 2
    assert "nothing would be measured" in explained.text
    assert len(json.loads(json.dumps(explained.to_json()))["set_aside"]) == 2

    (kept,) = kept_studies(path)
    assert {one.config for one in kept.aside} == {one.config for one in explained.aside}
    page = kernel_page("row_sums", "kernels.py", [study_report(kept, None)])
    assert "2 configs not measured: values of a thread spill" in page
    assert all(f"{one.config}: {one.spills} values" in page for one in kept.aside)

    monkeypatch.setattr(BenchEvaluator, "evaluate", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr(BenchEvaluator, "prepare", lambda *_: pytest.fail("compiled again"))
    (again,) = tune_path(path)
    assert (again.measured, again.reused, again.winner) == (0, row.measured, row.winner)
    assert again.remarks == row.remarks


def test_a_listed_space_is_measured_as_it_stands_unless_asked(file):
    path = file(LISTED)
    (row,) = tune_path(path)
    assert (row.measured, row.remarks) == (3, ())
    path.write_text(path.read_text() + "\n\nasked = 1\n")
    with override(spills=10, home=path.parent / "other"):
        (row,) = tune_path(path)
        assert (row.measured, len(row.remarks)) == (2, 1)
    with override(spills=40, home=path.parent / "other"):
        (row,) = tune_path(path)
        assert (row.measured, row.reused) == (1, 2)
