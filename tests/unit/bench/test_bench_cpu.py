"""The CPU benchmark's own logic, and its kernels on small sizes: what is wrong is never a figure. No timings."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples"))

from bench.cpu import report  # noqa: E402  # after the path
from repetitions import one_in  # noqa: E402
from silo.settings import override  # noqa: E402

ROWS = (
    *("add", "softmax", "short softmax", "layer norm", "rms norm", "swiglu", "bias gelu", "transpose"),
    *("cross entropy", "rope", "dropout"),
    *("matmul", "edge matmul", "grouped matmul", "attention", "flash", "causal flash", "flash backward"),
    *("scan", "sort", "atomics", "wide atomics", "histogram"),
)


def measured(row, silo, eager, compiled=None, threads=1, dtype="fp32"):
    samples = {"silo": [silo] * 3, "eager": [eager] * 3, **({} if compiled is None else {"compiled": [compiled] * 3})}
    return report.Measured(row, dtype, "16", threads, 16.0, "measured", "", 0.1, samples, samples, {})


def missing(row):
    return report.Measured(row, "fp32", "16", 1, 16.0, "missing", "tt.odd | not supported", None, {}, {}, {})


def verdicts(rows, costs=None):
    made = [report.figures(row, costs or {}) for row in rows]
    return {one.what: one for one in report.judge(made)}


def test_ratios_are_ours_over_theirs_within_a_round():
    samples = {"silo": [1.0, 20.0, 3.0], "eager": [2.0, 40.0, 6.0]}
    row = report.Measured("add", "fp32", "16", 1, 16.0, "measured", "", 0.1, samples, samples, {})
    found = report.figures(row, {"add": 0.25})
    assert found.to_eager is not None
    assert found.to_eager.median == 0.5
    assert found.to_compiled is None
    assert found.interpreter == pytest.approx(16 * 0.25 / 3.0)


def test_rows_have_bars_of_their_own_and_means_are_geometric():
    found = verdicts([measured("add", 1.0, 2.0, 1.0), measured("softmax", 2.0, 1.0, 1.0)])
    assert found["add fp32, 1 thread, to eager"].passed is True
    assert found["softmax fp32, 1 thread, to eager"].passed is False
    assert found["matmul fp32, 1 thread, to eager"].passed is None
    assert found["geometric mean of 2 fp32 rows, 1 thread, to eager"].value == pytest.approx(1.0)
    assert found["geometric mean of 2 fp32 rows, 1 thread, to torch.compile"].value == pytest.approx(2**0.5)


def test_other_dtypes_and_threads_do_not_count_for_the_fp32_bars():
    found = verdicts(
        [measured("add", 1.0, 2.0), measured("add", 9.0, 1.0, dtype="bf16"), measured("add", 9.0, 1.0, threads=2)]
    )
    assert found["geometric mean of 1 fp32 rows, 1 thread, to eager"].value == 0.5


def test_rows_that_are_missing_fail_a_bar_and_show_their_reason():
    rows = [measured("add", 1.0, 1.0), missing("sort")]
    assert verdicts(rows)["rows that are missing"].passed is False
    table = report.markdown([report.figures(row, {}) for row in rows])
    assert "| sort | 16 | missing: tt.odd / not supported | - | missing |" in table
    assert all(line.count("|") == 6 for line in table.splitlines())


def test_the_table_has_a_line_a_kernel_and_a_column_for_each_dtype_and_thread_count():
    rows = [
        measured("add", 1.0, 2.0),
        measured("add", 1.0, 4.0, dtype="bf16"),
        measured("add", 1.0, 1.0, threads=2),
        measured("histogram", 3.0, 1.0, dtype="int32"),
    ]
    table = report.markdown([report.figures(row, {}) for row in rows]).splitlines()
    assert table[0].endswith("| to eager: fp32, 1 thread | to eager: bf16, 1 thread | to eager: fp32, 2 threads |")
    assert table[2].endswith("| 0.50 | 0.25 | 1.00 |")
    assert table[3].startswith("| histogram, int32 |")
    assert table[3].endswith("| 3.00 | - | - |")


def test_the_least_over_the_interpreter_is_the_bar():
    found = verdicts([measured("add", 1.0, 1.0), measured("sort", 1.0, 1.0)], {"add": 100.0, "sort": 1.0})
    (least,) = (one for what, one in found.items() if "over the interpreter" in what)
    assert least.value == pytest.approx(16.0)
    assert least.passed is False


def test_the_table_of_a_page_is_replaced_between_its_marks():
    page = f"before\n{report.BEGIN}old\n{report.END}after\n"
    assert report.updated(page, "new\n") == f"before\n{report.BEGIN}new\n{report.END}after\n"
    with pytest.raises(ValueError, match="lacks the lines"):
        report.updated("no marks", "new\n")


# ---- rows ----


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with override(home=tmp_path_factory.mktemp("store"), tune="off"):
        yield


@pytest.fixture(scope="module")
def table():
    pytest.importorskip("triton", reason="the rows are Triton kernels")
    pytest.importorskip("torch", reason="the rows are compared with torch")
    from bench.cpu import table as cpu_table

    return cpu_table


def test_every_row_is_tested_here(table):
    assert tuple(table.ROWS) == ROWS


def test_an_unknown_row_is_named(table):
    with pytest.raises(SystemExit, match="no row called sum"):
        table.chosen(["sum", "add"], None)
    assert table.chosen(["add"], ["fp16"]) == [("add", "fp16")]


@pytest.mark.parametrize("name", one_in(4, ROWS))
def test_rows_are_right_on_a_small_size_and_notice_when_they_are_not(name, table, store):
    build, dtypes = table.ROWS[name]
    work = build("tiny", dtypes[0])
    work.silo()
    assert work.error() <= 1
    found, _ = next(iter(work.results().values()))
    found.view(-1)[-1] += 1000
    assert work.error() > 1
