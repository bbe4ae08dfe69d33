"""The silo command on modules, packages and classes; how it shows itself; the exit codes of every command."""

import json
import os
import subprocess
import sys

import pytest

import warm_python

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import silo
from silo.settings import override

OPS = """
import silo
import triton
import triton.language as tl
from .reference import double


class Ops:
    @silo.kernel(space={"BLOCK": [128]}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
    @triton.jit
    def scale(x, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@Ops.scale.cases(n=[1000])
def _(n, make):
    x, out = make.normal(n), make.empty(n)
    return silo.Case(args=(x, out, n), expected={"out": lambda: double(x.host)})
"""


def run(folder, *words, module=True, given="", **variables):
    environment = {**os.environ, "SILO_HOME": str(folder / "store"), "COLUMNS": "100", **variables}
    start = ["-m", "silo"] if module else ["-c", "from silo.cli.main import main; main()"]
    command = [sys.executable, *start, *map(str, words)]
    done = warm_python.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, input=given
    )
    assert "--debug" in words or "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("places")
    (made / "pkg/sub").mkdir(parents=True)
    (made / "pkg/__init__.py").touch()
    (made / "pkg/sub/__init__.py").touch()
    (made / "pkg/sub/ops.py").write_text(OPS)
    (made / "pkg/sub/reference.py").write_text("def double(x):\n    return 2 * x\n")
    (made / "wrong.py").write_text(OPS.replace("from .reference import double", "double = abs"))
    assert run(made, "build", "pkg.sub.ops", "-o", "k.silo", "--tune", "off").returncode == 0
    return made


@pytest.mark.parametrize("place", ["pkg.sub.ops", "pkg/sub/ops.py"])
def test_modules_and_files_in_packages_are_run_and_tuned(folder, place):
    (row,) = json.loads(run(folder, "run", place, "--json").stdout)
    assert (row["kernel"], row["ok"]) == ("Ops.scale", True)
    (row,) = json.loads(run(folder, "tune", place, "--json").stdout)
    assert (row["kernel"], row["winner"]) == ("Ops.scale", "BLOCK=128")
    assert run(folder, "tune", place, "--explain").returncode == 0


def test_a_kernel_of_a_class_is_called_from_a_bundle_by_its_name(folder):
    (row,) = json.loads(run(folder, "run", "k.silo", "--json").stdout)
    assert (row["kernel"], row["ok"]) == ("Ops.scale", True)
    with override(home=folder / "store"):
        kernels = silo.load(folder / "k.silo")
        x, out = (silo.Buffer((1000,), "float32") for _ in range(2))
        x.raw.cast("f")[0] = 3.0
        kernels.Ops.scale(x, out, 1000)
        kernels["Ops.scale"](x, out, 1000)
    assert out.raw.cast("f")[0] == 6.0
    assert dir(kernels.Ops) == ["scale"]
    with pytest.raises(AttributeError, match=r"Ops\.scales"):
        _ = kernels.Ops.scales


OK = {
    "build": ("build", "pkg.sub.ops", "-o", "again.silo", "--tune", "off"),
    "tune": ("tune", "pkg.sub.ops"),
    "run": ("run", "k.silo"),
    "inspect": ("inspect", "k.silo", "--verify"),
    "report": ("report", "k.silo"),
    "export": ("export", "k.silo", "--cpp", "cpp"),
    "doctor": ("doctor",),
    "trust": ("trust", "k.silo"),
    "cache": ("cache",),
    "cache prune": ("cache", "prune", "--size", "1000"),
    "cache export": ("cache", "export", "pkg.sub.ops", "-o", "out"),
}
FAILED = {
    "run": ("run", "wrong.py"),
    "inspect": ("inspect", "damaged.silo", "--verify"),
    "cache clear": ("cache", "clear"),
}
ERROR = {
    "build": ("build", "nope.ops", "-o", "again.silo"),
    "tune": ("tune", "nope.py"),
    "run": ("run", "nope.silo"),
    "inspect": ("inspect", "nope.silo"),
    "report": ("report", "nope.silo"),
    "export": ("export", "nope.silo", "--cpp", "cpp"),
    "trust": ("trust", "wrong.py"),
    "cache import": ("cache", "import", "nope.json"),
    "cache export": ("cache", "export", "nope.py", "-o", "out"),
}
CODES = [
    *((0, words) for words in OK.values()),
    *((1, words) for words in FAILED.values()),
    *((2, (*words, "--nonsense")) for words in OK.values()),
    *((3, words) for words in ERROR.values()),
]


@pytest.mark.parametrize(("code", "words"), CODES, ids=[f"{code} {' '.join(words)}" for code, words in CODES])
def test_exit_codes_are_as_documented(folder, code, words):
    if words[0] == "report" and code == 0:
        pytest.importorskip("jinja2")
        run(folder, "tune", "k.silo")
    if "export" in words and code == 0:
        run(folder, "tune", "pkg.sub.ops")
    damaged = bytearray((folder / "k.silo").read_bytes())
    damaged[100] ^= 1
    (folder / "damaged.silo").write_bytes(damaged)
    done = run(folder, *words, given="n\n")
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr.startswith("error: ") == (code == 3)


def test_an_error_with_its_traceback_has_the_same_exit_code(folder):
    done = run(folder, "--debug", "inspect", "nope.silo")
    assert done.returncode == 3
    assert "Traceback" in done.stderr


def test_a_defect_is_no_failed_check():
    program = "import sys; from silo.cli import main; main.app = lambda **_: 1 / 0; main.main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("words", [(), ("build",), ("tune",), ("run",), ("inspect",), ("cache",), ("cache", "import")])
def test_help_says_nothing_of_the_types_of_flags(folder, words):
    done = run(folder, *words, "--help")
    assert done.returncode == 0
    assert "<bool>" not in done.stdout
    assert "bool" not in done.stdout.lower()


def test_the_help_says_the_exit_codes(folder):
    text = " ".join(run(folder, "--help").stdout.split())
    assert "0 all is well; 1 a check failed" in text
    assert "130 interrupted" in text


def test_shells_complete_commands_and_options(folder):
    script = run(folder, "--show-completion", "bash", module=False)
    assert script.returncode == 0
    assert "complete" in script.stdout
    asked = {"_SILO_COMPLETE": "bash_complete", "COMP_WORDS": "silo re", "COMP_CWORD": "1"}
    assert run(folder, **asked).stdout.split() == ["plain,report"]
