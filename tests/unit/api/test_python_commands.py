"""``silo.build``, ``silo.tune``, ``silo.run`` and ``silo.check`` in Python, and how their results show."""

import importlib
import json
import warnings

import pytest

import silo
from silo.cli.main import app
from silo.commands.results import CaseOutcome, CaseResults
from silo.commands.run_cases import CheckingLauncher
from silo.errors import ArgumentError, CaseError, SourceError, TuneError
from silo.machine.user_files import load_module
from silo.settings import override
from silo.text_tables import Table

pytest.importorskip("triton", reason="these tests compile Triton kernels")

KERNELS = """
import numpy as np
import silo
import triton
import triton.language as tl


@silo.kernel(space={"BLOCK": [128, 256]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@scale.cases(n=[5000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * FACTOR})
"""


@pytest.fixture
def home(tmp_path):
    with override(home=str(tmp_path / "store")):
        yield tmp_path


@pytest.fixture
def kernels(home):
    (home / "scale_kernels.py").write_text(KERNELS.replace("FACTOR", "2"))
    return home / "scale_kernels.py"


def test_a_kernel_goes_through_all_commands(kernels, home, capsys):
    scale = load_module(kernels).scale
    tuned = silo.tune(scale, evaluations=2)
    assert [(row.kernel, row.case, row.measured) for row in tuned] == [("scale", "n=5000", 2)]
    assert "BLOCK=" in repr(tuned)
    assert "scale" in repr(tuned).splitlines()[0]
    ran = silo.run(scale)
    assert ran.ok
    assert ran[0].time_ns > 0
    assert len(ran) == len(ran[:]) == 1
    assert silo.check(str(kernels)).ok
    assert isinstance(silo.check(scale), CheckingLauncher)
    built = silo.build(scale, output=home / "k.silo", tune="cached")
    assert [row.kernel for row in built.rows] == ["scale"]
    assert built.rows[0].measured
    assert silo.run(str(home / "k.silo")).ok
    assert silo.run(home / "k.silo", kernels=["scale"])[0].case == "n=5000"
    assert capsys.readouterr() == ("", ""), "results show themselves; functions print nothing"


def test_they_are_what_the_shell_does(kernels, home, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    in_python = silo.build(str(kernels), output=home / "a.silo", tune="off", configs="all", targets=["cpu:x86-64-v3"])
    words = ["build", kernels, "-o", home / "b.silo", "--tune", "off", "--configs", "all", "-t", "cpu:x86-64-v3"]
    app.main([str(word) for word in [*words, "--json"]], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["identity"] == in_python.identity
    assert (home / "a.silo").read_bytes() == (home / "b.silo").read_bytes()
    monkeypatch.setattr("silo.cli.console.rich_console", lambda stderr=False: None)
    app.main([str(word) for word in words], standalone_mode=False)
    shown = capsys.readouterr().out.replace("b.silo", "a.silo").splitlines()
    assert shown[:4] == repr(in_python).splitlines()[:4]
    module = load_module(kernels)
    assert (
        silo.build(module, output=home / "c.silo", tune="off").rows
        == silo.build(module.scale, output=home / "d.silo", tune="off").rows
    )


def test_wrong_results_are_rows_of_run_and_an_error_of_tune(home):
    path = home / "wrong_kernels.py"
    path.write_text(KERNELS.replace("FACTOR", "3"))
    ran = silo.run(path)
    assert not ran.ok
    assert "elements differ" in repr(ran)
    with pytest.raises(TuneError, match="scale"):
        silo.tune(path)


def test_a_wrong_argument_says_so(home, kernels):
    for command in (silo.run, silo.tune):
        with pytest.raises(ArgumentError, match="int is neither a kernel nor the path"):
            command(3)
    with pytest.raises(SourceError, match="no such file"):
        silo.run("nowhere.py")
    with pytest.raises(ArgumentError, match="give a kernel"):
        silo.check(str(kernels), nan=True)
    with pytest.raises(ArgumentError, match="with a file or module"):
        silo.check(load_module(kernels).scale, kernels=["scale"])
    path = home / "caseless_kernels.py"
    path.write_text(KERNELS.partition("@scale.cases")[0])
    with pytest.raises(CaseError):
        silo.run(path)


def test_results_show_in_notebooks():
    rows = [CaseOutcome("<b>k</b>", "n=1", "BLOCK=1", ok=False, message="1 element\nof <out>\x1b differs")]
    results = CaseResults("k.py", rows)
    page = results._repr_html_()
    assert page.count("<td") == 6
    assert "&lt;b&gt;k&lt;/b&gt;" in page
    assert "1 element<br>of &lt;out&gt;\\x1b differs" in page
    assert not results.ok
    assert "\x1b" not in repr(results)


def test_a_table_fits_a_width():
    rows = [["add", "a long reason " * 10, "3"], ["matmul", "short", "12"]]
    text = Table("t", ["kernel", "why", "count"], rows, right=["count"]).text(60)
    assert max(map(len, text.splitlines())) <= 60
    lines = text.splitlines()
    assert lines[0] == "t"
    assert lines[3].startswith("add")
    assert lines[3].endswith(" 3")
    assert lines[-1].startswith("matmul")
    assert lines[-1].endswith("12")
    assert text.count("reason") == 10
    assert Table("", ["a"], []).text() == "a\n-"


def test_the_old_module_of_that_name_can_be_called():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old = importlib.import_module("silo.tune")
    try:
        assert silo.tune is old
        with pytest.raises(ArgumentError, match="neither a kernel"):
            silo.tune(3)
    finally:
        import sys

        del sys.modules["silo.tune"]
        del silo.tune
