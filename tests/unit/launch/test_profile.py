"""SILO_PROFILE: bytes by effects, what is written at exit and on Ctrl-C, the two ways of timing."""

import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import gpu_stub
import launch_kernels as kernels
from silo.core.signature import Effect
from silo.launch import native
from silo.launch.hooks import launch_hook, without_hooks
from silo.launch.profile import KernelTotal, LaunchProfile, moved_bytes, profile_table
from silo.settings import child_environment

BYTES = 4 * 200


def test_bytes_count_once_for_each_direction():
    x = np.zeros((10, 20), np.float32)
    half = np.zeros(200, np.float16)[::2]
    arguments = {"read": x, "write": x, "both": x, "none": x, "half": half, "n": 200, "null": None, "name": "relu"}
    effects = {name: Effect(name) for name in ("read", "write", "both", "none")}
    assert moved_bytes({"read": x}, effects) == BYTES
    assert moved_bytes({"both": x}, effects) == 2 * BYTES
    assert moved_bytes({"none": x}, effects) == 0
    assert moved_bytes({"half": half}, {"half": Effect.READ}) == 200
    assert moved_bytes({"x": x}, {}) == 2 * BYTES  # not known counts as both
    assert moved_bytes(arguments, {**effects, "half": Effect.WRITE}) == 4 * BYTES + 200


def test_launches_on_the_cpu_are_added_up():
    launch, asked = kernels.add()
    asked.binding = native.Binding(
        asked.binding.loaded,
        kernels.ADD_LAYOUT,
        {"BLOCK": 64},
        effects={"x": "read", "y": "read", "out": "write"},
    )
    x = np.arange(200, dtype=np.float32)
    profile = LaunchProfile()
    with launch_hook(profile):
        for _ in range(3):
            launch[4](x, x, np.zeros_like(x), 200)
        with without_hooks():
            launch[4](x, x, np.zeros_like(x), 200)
    (total,) = profile.totals()
    assert (total.kernel, total.device, total.launches, total.untimed) == ("add", "cpu:0", 3, 0)
    assert total.moved_bytes == 3 * 3 * BYTES
    assert total.time_ns > 0


def test_hooks_stay_off_while_any_block_wants_it():
    launch, _ = kernels.add()
    x, seen = np.arange(200, dtype=np.float32), []
    with without_hooks(), launch_hook(seen.append):  # added meanwhile
        with without_hooks():
            launch[4](x, x, np.zeros_like(x), 200)
        launch[4](x, x, np.zeros_like(x), 200)
    assert seen == []
    with launch_hook(lambda event: seen.append(event.kernel)):
        launch[4](x, x, np.zeros_like(x), 200)
    assert seen == ["add"]


def test_threads_share_one_profile():
    launch, _ = kernels.add()
    x = np.arange(200, dtype=np.float32)
    profile = LaunchProfile()

    def run():
        for _ in range(50):
            launch[4](x, x, np.zeros_like(x), 200)

    with launch_hook(profile):
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert profile.totals()[0].launches == 200


def test_the_table_is_sorted_and_sums_up():
    rows = [
        KernelTotal("big", "cuda:0", launches=4, time_ns=3_000_000, moved_bytes=6_000_000_000),
        KernelTotal("small", "cpu:0", launches=0, untimed=2),
    ]
    _, big, small = profile_table(rows).splitlines()
    assert big.split() == ["100.0%", "3.000", "4", "0.7500", "6.000", "2000.0", "big", "(cuda:0)"]
    assert small.endswith("small (cpu:0, 2 launches not timed)")
    assert KernelTotal("none", "cpu:0").gigabytes_per_second == 0.0


PROGRAM = """
import os, signal, sys
import numpy as np
import triton, triton.language as tl
import silo

@silo.kernel(space={"BLOCK": [256, 1024]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)

@silo.kernel(space={"BLOCK": [256]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def halve(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 0.5, mask=i < n)

x, out = np.ones(1000, np.float32), np.zeros(1000, np.float32)
for _ in range(5):
    double(x, out, 1000)
halve(x, 1000)
if "wait" in sys.argv:
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    pytest.importorskip("triton", reason="compiles Triton kernels")
    folder = tmp_path_factory.mktemp("profile")
    (folder / "program.py").write_text(PROGRAM)

    def run(name, *words):
        environment = {
            **os.environ,
            "SILO_HOME": str(folder / "home"),
            "SILO_PROFILE": name,
            "SILO_TUNE_BUDGET": "1",
        }
        command = [sys.executable, "program.py", *words]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        return done, folder / name

    return run


def test_a_program_leaves_its_profile_without_the_launches_of_tuning(program):
    done, path = program("profile.json")
    assert done.returncode == 0, done.stderr
    document = json.loads(path.read_text())
    assert document["schema"] == "profile/1"
    rows = {row["kernel"]: row for row in document["kernels"]}
    assert rows["double"]["launches"] == 5
    assert rows["double"]["moved_bytes"] == 5 * 8000
    assert rows["halve"]["moved_bytes"] == 8000  # 4000 bytes, read and written
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)
    times = [row["time_ns"] for row in document["kernels"]]
    assert times == sorted(times, reverse=True)


def test_ctrl_c_leaves_the_profile_too(program):
    done, path = program("table.txt", "wait")
    assert done.returncode in (1, 130, -signal.SIGINT)
    assert "KeyboardInterrupt" in done.stderr
    assert "double (cpu:0)" in path.read_text()


def test_a_file_that_cannot_be_written_is_an_error_at_once(program):
    done, _ = program("no/such/folder/profile.txt")
    assert done.returncode == 1
    assert "SILO_PROFILE: cannot write to" in done.stderr


def test_processes_that_silo_starts_keep_no_profile(monkeypatch):
    monkeypatch.setenv("SILO_PROFILE", "profile.txt")
    assert "SILO_PROFILE" not in child_environment()


ON_GPU = """
import numpy as np
from gpu_stub import stub
from silo.launch import native
from stub.gpu_launchers import Array, launcher
from silo.launch.hooks import launch_hook
from silo.launch.profile import LaunchProfile

launch, _ = launcher("copy", ("ptr", "ptr", "i32"))
x, out = Array(np.zeros(64, np.float32)), Array(np.zeros(64, np.float32))
profile = LaunchProfile()
with launch_hook(profile):
    for _ in range(3):
        launch[1](x, out, 64)
    stream = native.GpuStream("cuda", 0)
    stub.capture(stream.handle)
    launch[1](x, out, 64, stream=stream)
    stub.capture(stream.handle, 0)
assert stub.count("broken") == 0  # nothing of the profile went into the capture
(total,) = profile.totals()
assert (total.kernel, total.device, total.launches, total.untimed) == ("copy", "cuda:0", 3, 1), total
assert total.moved_bytes == 3 * 4 * 256, total
assert total.time_ns > 0, total
"""


def test_launches_on_gpus_are_timed_by_events():
    gpu_stub.run(ON_GPU)
