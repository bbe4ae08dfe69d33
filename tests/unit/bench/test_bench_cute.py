"""The benchmark of CuTe kernels: figures and bars. No timings, and nothing of the DSL."""

import pytest

pytest.importorskip("numpy")

from bench.cute import child, report


def process(wall_s, compiled, other_s=0.0):
    return {"wall_s": wall_s, "compiled": compiled, "reused": 0, "other_s": other_s}


def test_a_row_is_paired_with_the_other_of_its_own_round():
    one = report.figure("a", [110.0, 210.0, 440.0], [100.0, 200.0, 400.0], [report.Bar("a", 1.05)])
    assert one.ratio.median == 1.1
    assert one.passed is False
    assert report.figure("b", [1.0], [1.0], [report.Bar("a", 1.05)]).passed is None


def test_compiles_are_whole_processes_without_what_is_not_theirs():
    children = {
        "silo": [process(6.0, 32)],
        "dsl": [process(10.5, 32, other_s=0.5)],
        "again": [process(1.0, 0)],
    }
    found, wrong = report.compiles(children, 0.75)
    assert (found.ratio.median, found.passed, wrong) == (0.6, True, "")
    assert "again" in report.compiles({**children, "again": [process(1.0, 1)]}, 0.75)[1]
    assert "same number" in report.compiles({**children, "silo": [process(1.0, 31)]}, 0.75)[1]


def test_a_missing_row_is_a_line_with_its_reason():
    told = report.lines("t", "floor", "ns", [report.missing("a peer", "ModuleNotFoundError: no\n cutlass")])
    assert told[1].endswith("missing: ModuleNotFoundError: no cutlass")


def test_every_config_of_a_space():
    assert len(list(child.configs({"A": [1, 2], "B": [3, 4, 5]}))) == 6
