"""``silo selftest metal``: every probe is right on the emulator, and a wrong result is seen."""

import dataclasses
import json

import pytest

pytest.importorskip("numpy")

from emulator_jobs import require_clang
from silo.cli.main import main
from silo.kinds.metal.programs.metal_selftest import PROBES, selftest


def exit_code():
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_the_report_says_what_ran_and_that_it_was_no_hardware(capsys, monkeypatch):
    require_clang()
    monkeypatch.setattr("sys.argv", ["silo", "selftest", "metal"])
    assert exit_code() == 0
    said = capsys.readouterr().out
    assert said.startswith("Metal kernels, not on hardware\n- system: ")
    assert said.count("| the emulator | ") == len(PROBES)
    assert said.count("| ok |") == len(PROBES)


def test_a_wrong_result_is_seen_and_an_error_ends_no_other_probe(capsys, monkeypatch):
    require_clang()
    add, numbers = PROBES[:2]
    report = selftest(
        (
            dataclasses.replace(add, expected=lambda np, given: given[0]),
            dataclasses.replace(numbers, arguments=lambda np: (np.zeros(8, np.float32), *[70000] * 8)),
            add,
        )
    )
    assert [bool(one.wrong) for one in report.results] == [True, True, False]
    assert report.results[0].wrong == "1000 of 1000 differ; out[0] is 11.5, not 11.0"
    assert report.results[1].wrong.startswith("ArgumentError: numbers: argument 'c' needs uint16 in [0, 65535]")
    assert not report.ok
    monkeypatch.setattr("silo.kinds.metal.programs.metal_selftest.selftest", lambda: report)
    monkeypatch.setattr("sys.argv", ["silo", "selftest", "metal", "--json"])
    assert exit_code() == 1
    assert json.loads(capsys.readouterr().out)["results"][2]["wrong"] == ""


def test_a_kind_without_one_is_named(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["silo", "selftest", "triton"])
    assert exit_code() == 3
    assert "there is a self-test of metal kernels, and none of 'triton'" in capsys.readouterr().err
