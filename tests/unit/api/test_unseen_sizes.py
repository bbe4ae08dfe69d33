"""Sizes that nobody tuned: what `silo tune --suggest`, `--explain`, `explain` and reports say of them."""
# pyright: reportOperatorIssue=false, reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

import json

import click
import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

from silo.cli.main import app
from silo.commands.report_pages import write_reports
from silo.core.config import Config
from silo.errors import TuneError
from silo.kernels.collection import collect_kernels
from silo.machine.process_session import session
from silo.settings import override
from silo.tuner.ledger import Ledger, note_study
from silo.tuner.trial import Status
from silo.tuning.case_tuning import case_studies
from silo.tuning.explanation import explain_tuning, suggest_sizes

FILE = """
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [64, 1024]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def third(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 3.0, mask=i < n)


@third.cases(n=[32, 64, 128, 256, 1024, 4096, 16384, 65536])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 3})
"""
MEASURED = (32, 64, 128, 1024, 4096, 16384)


@pytest.fixture
def tuned(tmp_path):
    """A file, in whose store six of eight cases have trials that were made up: small blocks are good up to 256."""
    file = tmp_path / "kernels.py"
    file.write_text(FILE)
    with override(home=tmp_path / "home", tune="cached"):
        (kernel,) = collect_kernels([file])
        for study in case_studies(kernel, None):
            if study.bucket[0] not in MEASURED:
                continue
            problem = kernel.resolver.problem(study.situation)
            made = problem.study(study.situation.specialization, study.bucket)
            times = (1000, 1500) if study.bucket[0] <= 256 else (1500, 1000)
            note_study(made, session().store.records)
            Ledger(made, session().store.records).keep(
                [
                    made.trial(Config.of(BLOCK=block), Status.OK, (ns,) * 9)
                    for block, ns in zip((64, 1024), times, strict=True)
                ]
            )
        yield file, kernel


def test_cases_that_were_not_measured_are_suggested_first(tuned):
    file, _ = tuned
    (found,) = suggest_sizes(file, count=4)
    assert (found.kernel, found.key, len(found.generalization.samples)) == ("third", ("n",), 6)
    assert {one.bucket for one in found.sizes[:2]} == {(256,), (65536,)}
    assert [one.reason.split(",")[0] for one in found.sizes] == ["a case"] * 2 + ["between measured sizes"] * 2
    assert "third on cpu" in found.text
    assert "predicted loss without it: about" in found.text
    document = found.to_json()
    assert document["measured"] == 6
    assert document["suggested"][0]["size"] in ({"n": 256}, {"n": 65536})


def test_the_command_prints_them_and_measures_nothing(tuned, capsys):
    file, _ = tuned
    app(["tune", str(file), "--suggest"], standalone_mode=False)
    assert "measure n=" in capsys.readouterr().out
    app(["tune", str(file), "--suggest", "--json"], standalone_mode=False)
    (found,) = json.loads(capsys.readouterr().out)
    assert len(found["suggested"]) == 5
    for other in ("--explain", "--remeasure", "--lock=x.json"):
        with pytest.raises(click.BadParameter, match="only reads trials"):
            app(["tune", str(file), "--suggest", other], standalone_mode=False)


def test_without_trials_there_is_nothing_to_learn_from(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(FILE)
    with override(home=tmp_path / "home"), pytest.raises(TuneError, match="begin with silo tune"):
        suggest_sizes(file)


def test_explanations_call_a_prediction_a_prediction(tuned):
    file, kernel = tuned
    unseen = {case: one for case, one in explain_tuning(file) if one.unseen}
    assert list(unseen) == ["n=256", "n=65536"]
    assert unseen["n=256"].unseen.startswith("BLOCK=64")
    assert unseen["n=65536"].unseen.startswith("BLOCK=1024")
    assert "without measuring: BLOCK=64, predicted" in unseen["n=256"].text
    assert "slower than its own winner would be" in unseen["n=256"].text
    assert unseen["n=256"].to_json()["unseen"] == unseen["n=256"].unseen
    x, out = np.ones(200, np.float32), np.empty(200, np.float32)
    lines = kernel.explain(x, out, 200).splitlines()
    assert any(line.startswith("config: BLOCK=64 (dispatch rule") for line in lines)
    (loss,) = [line for line in lines if line.startswith("loss: ")]
    assert "predicted" in loss
    assert any(line.startswith("sizes that were not measured: ") for line in lines)


def test_the_report_has_a_section_of_predictions(tuned, tmp_path):
    pytest.importorskip("jinja2")
    file, _ = tuned
    write_reports(file, tmp_path / "pages")
    text = (tmp_path / "pages" / "third.html").read_text()
    assert "Sizes that were not measured" in text
    assert "Predictions, not measurements" in text
