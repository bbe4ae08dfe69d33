"""Plans of an exported bundle, in C++: the generated classes, and the class over silo.h's plans."""

from pathlib import Path

import pytest

import c_programs
import exported
from made_plans import write_plans

PROGRAM = Path(__file__).parents[1] / "samples" / "plan_program.cpp"


@pytest.mark.slow
def test_the_classes_of_an_export_run_its_plans(tmp_path):
    bundle = write_plans(tmp_path / "plans.silo")
    kernels = ("add", "bare", "fails")
    made = exported.export(bundle, tmp_path / "engine", *(word for name in kernels for word in ("--kernel", name)))
    header = (made / "engine.hpp").read_text()
    assert header.count("class ") == 3
    assert "void operator()(const silo::array<const float> &x, const silo::array<const float> &y," in header
    assert "const silo::array<std::int32_t> &out, std::int64_t n, const char *mode" in header
    program = exported.program(made, PROGRAM, tmp_path / "program", c_programs.archive())
    assert exported.run([program]).stdout.endswith("ended\n")


def test_an_export_of_other_kernels_has_no_plans(tmp_path):
    bundle = write_plans(tmp_path / "plans.silo")
    made = exported.export(bundle, tmp_path / "engine", "--kernel", "bare", "--kernel", "add")
    header = (made / "engine.hpp").read_text()
    assert "class failing" not in header
    assert "class sums" in header
