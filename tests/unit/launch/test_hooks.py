"""Callbacks around launches and the launch log, on the CPU: the native path is the same for every driver."""

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import launch_kernels as kernels
import silo
from silo.core.signature import Signature
from silo.errors import LaunchError, SettingsError
from silo.launch.hooks import launch_hook, nvtx_ranges, on_launch, torch_annotations
from silo.launch.log import LaunchLog
from silo.launch.runtime import make_launcher


@pytest.fixture
def call():
    launch, _ = kernels.add()
    x = np.arange(200, dtype=np.float32)
    out = np.zeros_like(x)
    return lambda: launch[4](x, x, out, 200), x, out


def test_a_hook_sees_the_launch_and_its_end(call):
    run, x, out = call
    events, order = [], []

    def hook(event):
        events.append(event)
        order.append(("before", float(out[3])))
        return lambda: order.append(("after", float(out[3])))

    with launch_hook(hook):
        run()
    run()
    assert order == [("before", 0.0), ("after", 6.0)]
    (event,) = events
    assert (event.kernel, event.grid, event.stream, event.device) == ("add", (4, 1, 1), 0, "cpu:0")
    assert event.arguments["x"] is x
    assert event.arguments["n"] == 200
    assert event.config["BLOCK"] == 64


def test_hooks_nest_and_leave_in_the_opposite_order(call):
    run, _, _ = call
    order = []
    with (
        launch_hook(lambda _: order.append("a") or (lambda: order.append("-a"))),
        launch_hook(lambda _: order.append("b")),
        launch_hook(lambda _: order.append("c") or (lambda: order.append("-c"))),
    ):
        run()
    assert order == ["a", "b", "c", "-c", "-a"]


def test_a_hook_that_raises_stops_the_launch_and_leaves_those_before_it(call):
    run, _, out = call
    left = []

    def refuse(event):
        raise RuntimeError(f"not {event.kernel}")

    with (
        launch_hook(lambda _: lambda: left.append(1)),
        launch_hook(refuse),
        pytest.raises(RuntimeError, match="not add"),
    ):
        run()
    assert left == [1]
    assert not out.any()
    run()
    assert out.any()


def test_the_error_of_a_launch_goes_before_that_of_a_hook():
    launch = make_launcher("f", Signature(()), on_miss=kernels.Asked("fail_at_3"))
    left = []

    def leave():
        left.append(1)
        raise ValueError("later")

    with launch_hook(lambda _: leave), pytest.raises(LaunchError):
        launch[4]()
    assert left == [1]
    with launch_hook(lambda _: leave), pytest.raises(ValueError, match="later"):
        launch[2]()


def test_a_hook_may_launch_and_take_itself_off(call):
    run, _, out = call
    seen = []

    def hook(_event):
        remove()
        seen.append(1)
        run()

    remove = on_launch(hook)
    run()
    assert seen == [1]
    assert out[3] == 6


def test_an_empty_grid_is_no_launch(call):
    launch, _ = kernels.add()
    x = np.zeros(4, dtype=np.float32)
    seen = []
    with launch_hook(seen.append):
        launch[0](x, x, x, 4)
    assert seen == []


def test_hooks_and_launches_of_several_threads(call):
    run, _, _ = call
    counts = []

    def work():
        for _ in range(50):
            with launch_hook(lambda _: lambda: counts.append(1)):
                run()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    before = len(counts)
    run()
    assert len(counts) == before


def test_the_log_has_one_line_a_launch(call, tmp_path):
    run, _, _ = call
    log = tmp_path / "launches.jsonl"
    with launch_hook(LaunchLog(log)):
        run()
        run()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == 2
    first = lines[0]
    assert first["kernel"] == "add"
    assert first["grid"] == [4, 1, 1]
    assert first["arguments"]["n"] == 200
    x = first["arguments"]["x"]
    assert (x["dtype"], x["shape"], x["strides"]) == ("float32", [200], [1])
    assert first["config"]["BLOCK"] == 64


def test_the_log_holds_what_json_cannot_say(call, tmp_path):
    launch, _ = kernels.nothing("f")
    log = tmp_path / "launches.jsonl"
    with launch_hook(LaunchLog(log)):
        launch[1](float("inf"))
    assert json.loads(log.read_text())["arguments"]["f"] == "inf"


def test_a_log_that_cannot_be_written(tmp_path):
    with pytest.raises(SettingsError, match="SILO_LAUNCH_LOG: cannot write to"):
        LaunchLog(tmp_path / "no such folder" / "log")


def test_the_setting_starts_the_log(tmp_path):
    log = tmp_path / "log.jsonl"
    program = (
        "import launch_kernels as kernels, numpy as np\n"
        "launch, _ = kernels.add()\n"
        "x = np.zeros(8, dtype=np.float32)\n"
        "launch[1](x, x, x, 8)\n"
    )
    environment = {"SILO_LAUNCH_LOG": str(log), "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, **environment})
    assert json.loads(log.read_text())["kernel"] == "add"


def test_annotations_need_their_library():
    program = (
        "import silo\nfrom silo.errors import SettingsError\n"
        "for make in (silo.torch_annotations, silo.nvtx_ranges):\n"
        "    try:\n        make()\n    except SettingsError as error:\n        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "need torch, imported before" in done.stdout


@pytest.mark.filterwarnings("ignore:.*Profiler clears events at the end:UserWarning")  # torch's, of every profile
def test_torch_profiler_names_launches(call):
    torch = pytest.importorskip("torch", reason="annotates torch's profiler")
    run, _, _ = call
    with torch.profiler.profile() as profile, launch_hook(torch_annotations()):
        run()
    assert "silo::add" in {event.key for event in profile.key_averages()}


def test_nvtx_ranges_push_and_pop(call, monkeypatch):
    run, _, _ = call
    marks = []
    fake = type(sys)("nvtx")
    fake.push_range = marks.append
    fake.pop_range = lambda: marks.append(None)
    monkeypatch.setitem(sys.modules, "nvtx", fake)
    with launch_hook(nvtx_ranges()):
        run()
    assert marks == ["add", None]


def test_public_names():
    assert silo.on_launch is on_launch
    with pytest.raises(SettingsError):
        raise SettingsError("the family")
