"""The flight recorder in programs that run on the CPU, from the launch to the line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import warm_python
from silo.checking.crash_report import CrashCause, read_report
from silo.commands.crash_suspects import suspects_of
from silo.commands.examine_crash import examine_crash
from silo.errors import TrustError
from silo.launch import flight
from silo.settings import override

ROOT = Path(__file__).parents[3]

KERNELS = """
import os, sys
import torch, triton, triton.language as tl
import silo

@triton.jit
def strided(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i * stride, mask=i < n)
    tl.store(out + i, v, mask=i < n)

@triton.jit
def picked(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.load(index + i, mask=i < n, other=0)
    tl.store(out + i, tl.load(x + j, mask=i < n), mask=i < n)

x, out = torch.ones(1000), torch.zeros(1000)
index = torch.arange(1000, dtype=torch.int32)
silo.accelerate()
for _ in range(2):
    strided[(4,)](x[4:], out, 1, 900, BLOCK=256)
    picked[(4,)](x, index, out, 900, BLOCK=256)
"""
LINE = 16  # of the load that `picked` indexes
ASKED = "index[77] = 1001\npicked[(4,)](x, index, out, 900, BLOCK=256)\nindex[77] = 0\nsilo.dump_launches()\n"


def program(folder, last, *, kernels=KERNELS, start=warm_python.run, **variables):
    """Run a program; the completed process, and the place of its report."""
    file = folder / "program.py"
    file.write_text(kernels + last)
    report = folder / "crash.silo"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "SILO_FLIGHT": "1",
        "SILO_FLIGHT_FILE": str(report),
        "SILO_HOME": str(folder / "store"),
        "TRITON_CACHE_DIR": str(folder / "cache"),  # its texts name the file of the first run
        **variables,
    }
    more = {} if start is subprocess.run else {"more": (*warm_python.TORCH, *warm_python.TRITON)}
    words = [sys.executable, str(file)]
    done = start(words, env=environment, capture_output=True, text=True, check=False, timeout=120, **more)
    return done, report


def examined(path, home):
    """The verdicts, with the store that vouches for the texts."""
    with override(home=home), pytest.MonkeyPatch.context() as patch:
        patch.setenv("SILO_HOME", str(home))
        return examine_crash(path).verdicts


def test_a_signal_names_the_launch_that_got_it(tmp_path):
    last = "index[77] = 1 << 30\npicked[(4,)](x, index, out, 900, BLOCK=256)\n"
    done, path = program(tmp_path, last, start=subprocess.run)
    assert done.returncode < 0
    assert f"silo crash {path}" in done.stderr
    report = read_report(path)
    assert (report.cause.kind, report.cause.kernel, report.cause.program) == ("signal", "picked", (0, 0, 0))
    assert report.launches[-1].state == "running"
    # The other launches have returned; the indices are those in memory.
    (verdict,) = examined(path, tmp_path / "store")
    assert (verdict.outcome, verdict.kind, verdict.argument) == ("named", "out of bounds", "x")
    assert (verdict.place, verdict.index) == (f"{tmp_path / 'program.py'}:{LINE}", (77,))


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A program whose integers are copied, and its report; the fault harms nothing that is mapped."""
    folder = tmp_path_factory.mktemp("asked")
    done, path = program(folder, ASKED, SILO_FLIGHT="arrays")
    assert done.returncode == 0, done.stderr
    return path


def test_copies_of_integers_decide_loaded_indices(asked):
    named = [one for one in examined(asked, asked.parent / "store") if one.outcome == "named"]
    assert [(one.kernel, one.index, one.argument) for one in named] == [("picked", (77,), "x")]
    first = read_report(asked).launches[0].arguments[0]
    assert (first.word - first.low, first.size, first.view) == (16, 4000, False)  # of the storage, not of the view


def test_texts_from_elsewhere_need_trust(asked, tmp_path):
    with pytest.raises(TrustError):
        examined(asked, tmp_path)


@pytest.mark.all  # docs/crashes.md has a second run in every run
def test_the_second_run_checks_with_copies(asked, tmp_path):
    more = {"SILO_FLIGHT_CHECK": str(asked), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    again, _ = program(tmp_path, ASKED, **more)
    assert again.returncode == 1
    assert f"CheckError: picked: a load out of bounds at {tmp_path / 'program.py'}:{LINE}" in again.stderr
    assert "index (77)" in again.stderr


def test_an_abort_leaves_the_launches_before_it(tmp_path):
    done, path = program(tmp_path, "os.abort()\n", start=subprocess.run)
    assert done.returncode == -6
    assert f"silo crash {path}" in done.stderr
    report = read_report(path)
    assert report.cause == CrashCause("signal", "SIGABRT", 6)
    assert [one.state for one in report.launches] == ["returned"] * 4
    assert sum(len(one.numbers) for one in suspects_of(report)) == 4  # none is in its call, so all are suspects


ENDLESS = """
import os, threading, time
import torch, triton, triton.language as tl
import silo

@triton.jit
def endless(x):
    while tl.load(x, volatile=True) == 0:
        pass

silo.accelerate()
flag = torch.zeros(1, dtype=torch.int32)
def end():
    while not os.path.exists(os.environ["SILO_FLIGHT_FILE"]):
        time.sleep(0.05)
    flag[0] = 1
threading.Thread(target=end, daemon=True).start()
endless[(1,)](flag)
"""


def test_a_hang_is_reported(tmp_path):
    done, path = program(tmp_path, "", kernels=ENDLESS, SILO_FLIGHT_HANG="0.5")
    assert done.returncode == 0, done.stderr
    report = read_report(path)
    assert report.cause.kind == "hang"
    assert (report.kernels[report.launches[-1].kernel].name, report.launches[-1].state) == ("endless", "running")


@pytest.mark.parametrize(
    ("text", "written"),
    [("CUDA error: an illegal memory access was encountered", ["device error"]), ("CUDA error: invalid argument", [])],
)
def test_exceptions_of_a_lost_gpu_are_reported(monkeypatch, text, written):
    found = []
    monkeypatch.setattr(flight, "_write", lambda cause, _: found.append(cause) or Path("crash.silo"))
    flight._notice(RuntimeError(text))
    assert found == written


def test_without_the_recorder_nothing_can_be_written(tmp_path):
    code = "import silo\ntry:\n    silo.dump_launches()\nexcept silo.SiloError as error:\n    print(error)\n"
    done = warm_python.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "SILO_FLIGHT": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "no launches are kept: set SILO_FLIGHT=1" in done.stdout


DECLARED = """
import numpy as np
import silo, triton, triton.language as tl

@silo.kernel(space={"BLOCK": [256]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def strided(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i * stride, mask=i < n)
    tl.store(out + i, v, mask=i < n)

@strided.cases(n=[900])
def _(n, make):
    x, out = make.normal(1000), make.empty(n)
    return silo.Case(args=(x, out, 1, n), expected={"out": lambda: x.host[:n]})

x, out = np.ones(1000, np.float32), np.zeros(1000, np.float32)
def crash(kernel):
    kernel(x, out, 1, 900)
    kernel(x, out, 1 << 22, 900)
"""


def test_a_kernel_of_this_process_is_named(tmp_path):
    done, path = program(tmp_path, "crash(strided)\n", kernels=DECLARED, start=subprocess.run, SILO_TUNE="off")
    assert done.returncode < 0
    assert f"silo crash {path}" in done.stderr, done.stderr
    (verdict,) = examined(path, tmp_path / "store")
    assert (verdict.outcome, verdict.kernel, verdict.kind, verdict.argument) == (
        "named",
        "strided",
        "out of bounds",
        "x",
    )
    assert verdict.place == f"{tmp_path / 'program.py'}:9"


@pytest.mark.all
def test_a_kernel_of_a_bundle_is_named(tmp_path):
    (tmp_path / "kernels.py").write_text(DECLARED)
    store = {"SILO_HOME": str(tmp_path / "store"), "PYTHONPATH": str(ROOT / "src")}
    build = [sys.executable, "-m", "silo", "build", "kernels.py", "-o", "k.silo", "-t", "cpu", "--tune", "off"]
    built = warm_python.run(build, env={**os.environ, **store}, cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    opened = DECLARED.replace("import silo, triton, triton.language as tl\n", "import silo\n")
    opened = opened[: opened.index("@silo.kernel")] + opened[opened.index("x, out = np.ones") :]
    last = f"crash(silo.load({str(tmp_path / 'k.silo')!r}).strided)\n"
    done, path = program(tmp_path, last, kernels=opened, start=subprocess.run)
    assert done.returncode < 0, done.stderr
    with pytest.raises(TrustError):  # the text of a bundle is not taken for this store's own
        examined(path, tmp_path / "store")
    with override(home=tmp_path / "store"):
        (verdict,) = examine_crash(path, trust=True).verdicts
    assert (verdict.outcome, verdict.kernel, verdict.argument) == ("named", "strided", "x")
