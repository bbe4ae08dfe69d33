"""The silo command as a process: exit codes, messages, JSON."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import warm_python
from silo.cli.options import LIBRARIES
from silo.launch.array_libraries.library_table import NAMES

pytest.importorskip("triton", reason="these tests compile Triton kernels")

ROOT = Path(__file__).resolve().parents[3]
KERNELS = """
import numpy as np
import silo
import triton
import triton.language as tl


@silo.kernel(space={SPACE}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr, OFFSET: tl.constexpr = 0):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0 + OFFSET, mask=i < n)


@scale.cases(n=[5000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host * 2})
"""
RIGHT = '{"BLOCK": [128, 256, 512, 1024]}'


def silo(home, *words, **variables):
    environment = {**os.environ, "SILO_HOME": str(home), "COLUMNS": "200", **variables}
    command = [sys.executable, "-c", "from silo.cli.main import main; main()", *map(str, words)]
    done = warm_python.run(command, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def kernels(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS.replace("{SPACE}", RIGHT))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("cli") / "store"


WRONG_USAGE = [
    ("frobnicate",),
    ("build", "kernels.py"),
    ("build", "kernels.py", "-o", "k.silo", "--tune", "maybe"),
    ("tune", "kernels.py", "--evaluations", "many"),
    ("tune", "kernels.py", "--evaluations", "0"),
    ("tune", "kernels.py", "--budget", "0"),
    ("tune", "kernels.py", "--searcher", "foo"),
    ("build", "kernels.py", "-o", "k.silo", "--configs", "many"),
    ("build", "kernels.py", "-o", "k.silo", "--target", "gpu"),
    ("run", "kernels.py", "--arrays", "mxnet"),
    ("inspect", "kernels.py", "--code", "fortran"),
    ("inspect", "kernels.py", "--code", "c", "--target", "cuda:90"),
    ("inspect", "k.silo", "--case", "n=1"),
]


@pytest.mark.parametrize("words", WRONG_USAGE, ids=" ".join)
def test_wrong_usage_is_2(home, words):
    done = silo(home, *words)
    assert done.returncode == 2
    assert "Error:" in done.stderr


WRONG = {
    "a file that is not there": (("run", "nope.py"), "nope.py: no such file"),
    "a bundle that is not there": (("run", "nope.silo"), "nope.silo"),
    "an unknown kernel": (("run", "{file}", "-k", "nope"), "there are scale"),
    "a device that is not here": (("run", "{file}", "--device", "cuda"), "no device 'cuda'"),
    "a file instead of a bundle": (("inspect", "{file}"), "add --code c"),
    "no bundle": (("trust", "{file}"), "not a .silo file"),
    "a wrong setting": (("cache",), "SILO_TUNE"),
}


@pytest.mark.parametrize(("words", "message"), WRONG.values(), ids=WRONG.keys())
def test_an_error_is_3_with_its_message(home, kernels, words, message):
    variables = {"SILO_TUNE": "sometimes"} if message == "SILO_TUNE" else {}
    done = silo(home, *(word.format(file=kernels) for word in words), **variables)
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert message in done.stderr


def test_no_c_compiler(home, kernels):
    named = silo(home, "run", kernels, "--tune", "off", SILO_CC="nonsense-cc")
    assert named.returncode == 3
    assert "'nonsense-cc' was not found" in named.stderr
    nowhere = silo(home, "run", kernels, "--tune", "off", PATH="/nowhere", CC="", SILO_CC="")
    assert nowhere.returncode == 3
    assert "apt-get install gcc" in nowhere.stderr


def test_no_triton(home, kernels, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'triton':\n"
        "            raise ModuleNotFoundError(\"No module named 'triton'\", name='triton')\n"
        "sys.meta_path.insert(0, Block())\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = silo(home, "run", kernels, PYTHONPATH=path)
    assert done.returncode == 3
    assert "triton" in done.stderr
    assert "pip install" in done.stderr


def test_run_inspect_and_json(home, kernels, tmp_path):
    bundle = tmp_path / "k.silo"
    assert silo(home, "build", kernels, "-o", bundle, "--tune", "off", "-q").returncode == 0
    rows = json.loads(silo(home, "run", bundle, "--json").stdout)
    assert [(row["kernel"], row["case"], row["ok"]) for row in rows] == [("scale", "n=5000", True)]
    described = json.loads(silo(home, "inspect", bundle, "--json", "--verify").stdout)
    assert described["kernels"] == ["scale"]
    assert all(variant["target"].startswith("cpu:") for variant in described["variants"])
    assert "every byte verified" in silo(home, "inspect", bundle, "--verify").stdout
    assert "sampled elements)" in silo(home, "inspect", bundle).stdout
    assert json.loads(silo(home, "inspect", bundle, "--json", "-k", "scale").stdout) == described
    assert "it holds: scale" in silo(home, "inspect", bundle, "-k", "nope").stderr
    assert "build it with --target cuda:sm_90 too" in silo(home, "inspect", bundle, "--code", "ptx").stderr
    assert silo(home, "run", bundle, "--arrays", "buffer").returncode == 0


def test_run_in_checking_mode(home, kernels, tmp_path):
    bundle = tmp_path / "k.silo"
    assert silo(home, "build", kernels, "-o", bundle, "--tune", "off", "-q").returncode == 0
    for path in (kernels, bundle):
        (row,) = json.loads(silo(home, "run", "--check", path, "--json").stdout)
        assert (row["kernel"], row["ok"], row["message"], row["time_ns"]) == ("scale", True, "clean", None)
    broken = tmp_path / "broken.py"
    broken.write_text(KERNELS.replace("{SPACE}", RIGHT).replace("tl.load(x + i, mask=i < n)", "tl.load(x + i)"))
    assert silo(home, "build", broken, "-o", bundle, "--tune", "off", "-q").returncode == 0
    line = next(number for number, text in enumerate(broken.read_text().splitlines(), 1) if "tl.load" in text)
    for path, place in (
        (broken, f"at {broken}:{line}"),
        (bundle, "in tt.load number 1 (the text of the kernel has no"),
    ):
        done = silo(home, "run", "--check", path, "--json")
        assert done.returncode == 1
        (row,) = json.loads(done.stdout)
        assert f"CheckError: scale: a load out of bounds {place}" in row["message"]
        assert "of x (numpy" in row["message"]


def test_a_wrong_result_is_1_and_a_wrong_config_never_wins(home, tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS.replace("{SPACE}", '[{"BLOCK": 64, "OFFSET": 1}, {"BLOCK": 128, "OFFSET": 0}]'))
    done = silo(home, "run", path, "--tune", "off")
    assert done.returncode == 1
    assert "elements differ" in done.stdout
    (row,) = json.loads(silo(home, "tune", path, "--json").stdout)
    assert row["winner"] == "BLOCK=128, OFFSET=0"
    assert row["failures"] == {"wrong": 1}
    assert silo(home, "run", path).returncode == 0


def test_events_are_lines_of_json(kernels, tmp_path):
    store = tmp_path / "store"
    done = silo(store, "tune", kernels, "--events", "-")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["done"] for line in lines if line["phase"] == "search"] == [1, 2, 3, 4]
    assert {line["session"] for line in lines} == {"scale n=5000"}
    assert lines[-1]["best"]["BLOCK"] in (128, 256, 512, 1024)
    assert silo(store, "tune", kernels, "--events", "-", "--json").returncode == 2
    quiet = silo(store, "tune", kernels, "--quiet", "--events", tmp_path / "events.jsonl")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    assert json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])["reused"] == 4


def test_results_move_between_stores(kernels, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    assert silo(here, "tune", kernels, "-q").returncode == 0
    assert "scale[n~2^13]" in silo(here, "cache", "export", kernels, "-o", tmp_path / "out").stdout
    (file,) = (tmp_path / "out").iterdir()
    assert "T4" in silo(there, "cache", "import", file).stdout
    (tuned,) = json.loads(silo(there, "tune", kernels, "--json").stdout)
    assert (tuned["measured"], tuned["reused"]) == (0, 4)


def test_ctrl_c_keeps_what_is_finished_and_the_next_run_goes_on(kernels, tmp_path):
    store = tmp_path / "store"
    environment = {**os.environ, "SILO_HOME": str(store), "SILO_JOBS": "1"}
    command = [sys.executable, "-c", "from silo.cli.main import main; main()", "tune", str(kernels)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None and not list((store / "records").glob("*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert "Traceback" not in err
    (row,) = json.loads(silo(store, "tune", kernels, "--json").stdout)
    assert row["measured"] + row["reused"] == 4
    if process.returncode == 130:  # otherwise it had finished before the signal came
        assert "interrupted" in err
    else:
        assert process.returncode == 0
        assert row["measured"] == 0


def test_doctor_cache_and_version(home):
    parts = {finding["part"]: finding["state"] for finding in json.loads(silo(home, "doctor", "--json").stdout)}
    assert parts["native module"] == "ok"
    assert parts["device cpu"] == "ok"
    assert parts["Triton's own calls on the CPU"] in ("ok", "optional")
    assert parts["Triton's backend for torch's CPU"] in ("ok", "optional")
    assert parts.get("operators of torch", "ok") == "ok"
    assert silo(home, "doctor", SILO_TUEN="x").stdout.count("did you mean SILO_TUNE?") == 1
    usage = json.loads(silo(home, "cache", "--json").stdout)
    assert usage["root"] == str(home)
    assert silo(home, "cache", "prune", "--size", "0").returncode == 0
    assert silo(home, "cache", "clear", "--yes").returncode == 0
    left = json.loads(silo(home, "cache", "--json").stdout)
    assert {name for name, size in left.items() if name.endswith("_bytes") and size} <= {"total_bytes"}
    assert left["total_bytes"] <= 10 * 4096  # the ledger, locks and counts of the store itself
    assert silo(home, "--version").stdout.startswith("silo ")


def test_the_command_names_every_library_of_arrays():
    assert set(LIBRARIES) == set(NAMES)


@pytest.mark.parametrize(
    "name", ["build", "tune", "run", "inspect", "report", "export", "doctor", "selftest", "cache", "trust", "agent"]
)
def test_every_command_explains_itself(home, name):
    done = silo(home, name, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout
    assert "<path>" not in done.stdout
    assert "<list[" not in done.stdout


def test_words_that_people_guess(home, kernels):
    assert silo(home, "version").stdout == silo(home, "--version").stdout
    assert silo(home, "help").stdout.rstrip() == silo(home, "--help").stdout.rstrip()
    inner = silo(home, "help", "cache", "prune").stdout
    assert inner.rstrip() == silo(home, "cache", "prune", "--help").stdout.rstrip()
    wrong = silo(home, "help", "cache", "prone")
    assert wrong.returncode == 2
    assert "there is no command 'cache prone'" in wrong.stderr
    checked = silo(home, "check", kernels, "--json")
    assert checked.stdout == silo(home, "run", "--check", kernels, "--json").stdout
    assert checked.returncode == 0


def test_help_has_one_line_for_each_command(home):
    text = silo(home, "help", COLUMNS="80").stdout
    lines = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    for name in ("exec", "build", "check", "slice", "trust", "doctor", "cache", "version"):
        (line,) = (one for one in lines if one.split(" ")[0] == name)
        assert line.endswith(".")
