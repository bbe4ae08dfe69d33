"""The page on notebooks in a real Jupyter kernel: progress below the cell, tables as HTML, edited cells, errors.

Runs in an environment with Jupyter's kernel: ``pip install nbclient nbformat ipykernel``.
"""

import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks are made by nbformat")
nbclient = pytest.importorskip("nbclient", reason="notebooks are run by nbclient")
pytest.importorskip("ipykernel", reason="cells run in ipykernel")
pytest.importorskip("triton", reason="the kernels are Triton's")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "notebooks.md").read_text(encoding="utf-8")
KERNEL, EXPLAINED, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CASES = """
@scale.cases(n=[1000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n, 0.5), expected={"out": lambda: x.host})
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The outputs of each cell: of the page, of an edited kernel, and of the functions that stand for commands."""
    folder = tmp_path_factory.mktemp("notebook")
    edited = KERNEL.replace("* factor", "* factor * 2").replace("out == 2 * x", "out == 4 * x")
    texts = {
        "page": KERNEL,
        "edited": edited,
        "explained": EXPLAINED,
        "cases": CASES,
        "run": "silo.run(scale)",
        "tune": "silo.tune(scale)",
        "build": "silo.build(scale, output='s.silo', targets=['cpu'], tune='cached')",
        "checked": "silo.check(scale)(x[:100].copy(), out, x.size, 2.0)",
    }
    notebook = nbformat.v4.new_notebook()
    store = f"import os; os.environ['SILO_HOME'] = {str(folder / 'store')!r}"
    notebook.cells = [nbformat.v4.new_code_cell(text) for text in (store, *texts.values())]
    client = nbclient.NotebookClient(
        notebook, timeout=240, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return dict(zip(texts, (cell.outputs for cell in notebook.cells[1:]), strict=True))


def text_of(outputs):
    return "".join(one.text for one in outputs if one.output_type == "stream")


def test_the_first_call_shows_one_line_that_progress_leads_to(cells):
    for name in ("page", "edited"):
        shown = text_of(cells[name]).split("\r")[-1]
        assert re.fullmatch(r"silo: tuned scale\[n~2\^13\] on cpu:\S+: 2 configs in .* kept in the store\n", shown)
    assert "config: BLOCK=" in text_of(cells["explained"])


@pytest.mark.parametrize("command", ["run", "tune", "build"])
def test_a_result_is_a_table_in_html_and_in_text(cells, command):
    (shown,) = (one.data for one in cells[command] if one.output_type == "execute_result")
    assert shown["text/html"].startswith("<table>")
    assert "kernel" in shown["text/plain"].splitlines()[1]


def test_a_fault_is_an_error_of_the_cell(cells):
    (error,) = (one for one in cells["checked"] if one.output_type == "error")
    assert error.ename == "CheckError"
    assert "a load out of bounds at" in error.evalue


def test_no_other_cell_fails(cells):
    assert not [
        name for name, outputs in cells.items() if name != "checked" and any(o.output_type == "error" for o in outputs)
    ]
