"""The benchmark of C programs: figures, bars, and that its programs compile. No timings."""

import shutil
import subprocess

import pytest

pytest.importorskip("numpy")

from bench.cpp import command, programs, report


def launched(launch, floor=None, empty=None):
    samples = {"launch": launch, "floor": floor, "empty": empty}
    return report.launches({name: values for name, values in samples.items() if values})


def test_a_launch_is_compared_with_the_floor_of_its_own_round():
    one = launched([110.0, 210.0, 410.0], floor=[100.0, 200.0, 400.0], empty=[30.0, 31.0, 32.0])
    assert one.over_floor.median == 10
    assert one.of_floor.median == 1.05
    assert one.empty.median == 31
    assert (one.rounds, one.minimum, one.floor_minimum, one.empty_minimum) == (3, 110, 100, 30)
    assert launched([5.0]).over_floor is None


def test_steps_of_fresh_processes_are_medians_in_milliseconds():
    samples = [{"open": value * 1e6, "first result": 2 * value * 1e6} for value in (3, 1, 2)]
    assert report.firsts(samples) == {
        "open": {"median": 2, "min": 1},
        "first result": {"median": 4, "min": 2},
    }
    assert report.firsts([]) == {}


def test_bars_are_judged_and_what_was_not_measured_is_not():
    library = {"bytes": 200_000, "cpu_s": 15.1}
    kernels = {"add on the CPU": launched([90.0], empty=[50.0]), "5+3 on the GPU": launched([1.06], floor=[1.0])}
    processes = {"demo bundle on the CPU": {"first result": {"median": 5.5, "min": 5.0}}}
    bars = (*report.LIBRARY_BARS, *report.CPU_BARS, *report.GPU_BARS)
    verdicts = report.judge(report.values(library, kernels, processes), bars)
    told = {(one.bar.subject, one.bar.figure): one.passed for one in verdicts}
    assert told == {
        ("libsilo", "stripped"): True,
        ("libsilo", "built"): False,
        ("add on the CPU", "empty grid"): True,
        ("demo bundle on the CPU", "first result"): False,
        ("1,000 variants on the CPU", "first result"): None,
        ("5+3 on the GPU", "of the floor"): False,
        ("demo bundle on the GPU", "first result"): None,
    }
    text = "\n".join(report.lines(library, kernels, processes, verdicts))
    assert "FAIL         libsilo, built: 15.100 (at most 15 s of one core)" in text
    assert "not measured" in text
    assert report.document(kernels, verdicts)["bars"][0]["passed"] is True


def test_the_rows_and_bars_have_the_same_names(monkeypatch, tmp_path):
    printed = {"right": True, "first result": 1, "typed launch": [2.0], "plain launch": [1.0], "typed empty": [1.0]}
    monkeypatch.setattr(command, "floor_arguments", lambda *_: [])
    monkeypatch.setattr(programs, "measured", lambda *_: dict(printed))
    rows = command.launch_samples(tmp_path, {}, 3, 5, "libcuda.so.1")
    firsts = command.first_samples(tmp_path, {}, 2, "libcuda.so.1", stub=False)
    subjects = {bar.subject for bar in (*report.CPU_BARS, *report.GPU_BARS)}
    assert subjects <= {*rows, *firsts}
    assert {len(one) for one in firsts.values()} == {2}
    assert firsts["export on the CPU"][0] == {"first result": 1}  # the lists are of rounds


def test_a_wrong_result_is_no_figure(monkeypatch, tmp_path):
    monkeypatch.setattr(programs, "measured", lambda *_: {"right": False, "first result": 1})
    with pytest.raises(programs.ProgramError, match="the result is wrong"):
        command.first_samples(tmp_path, {}, 2, None, stub=False)


@pytest.mark.parametrize("name", ["launches", "first"])
def test_its_programs_compile_without_a_warning(name):
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    flags = ["-std=gnu11", "-fsyntax-only", *programs.WARNINGS, "-Werror", f"-I{programs.CORE}"]
    source = programs.HERE / f"{name}.c"
    done = subprocess.run(["gcc", *flags, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
