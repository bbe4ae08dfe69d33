"""The demo says how busy the machine was, in scripts/machine_load.py."""

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[3] / "scripts" / "machine_load.py"


@pytest.fixture
def machine_load(monkeypatch):
    spec = importlib.util.spec_from_file_location("machine_load", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "machine_load", module)
    spec.loader.exec_module(module)
    return module


def test_the_sentence(machine_load, monkeypatch, tmp_path):
    assert str(machine_load.MachineLoad(0.04, 2)) == "other programs took 0.0 of 2 cores meanwhile"
    assert "1.5 of 2 cores meanwhile: times of both sides are longer" in str(machine_load.MachineLoad(1.5, 2))
    monkeypatch.setattr(machine_load, "_STAT", tmp_path / "absent")
    assert "not counted here" in str(machine_load.LoadMeter().read())


def test_others_are_what_all_did_less_ones_own(machine_load, monkeypatch, tmp_path):
    stat = tmp_path / "stat"
    monkeypatch.setattr(machine_load, "_STAT", stat)
    monkeypatch.setattr(machine_load.os, "sysconf", lambda name: 100)
    monkeypatch.setattr(machine_load.os, "times", iter([(1, 1, 0, 0, 0), (2, 1, 0, 0, 0)]).__next__)
    monkeypatch.setattr(machine_load.time, "monotonic", iter([10.0, 14.0]).__next__)
    stat.write_text("cpu 100 0 0 9999 0 0 0 0\n")
    meter = machine_load.LoadMeter()
    stat.write_text("cpu 300 50 50 10999 0 0 0 0\ncpu0 1\n")
    assert meter.read().others == pytest.approx((3.0 - 1.0) / 4)
