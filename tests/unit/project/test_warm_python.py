"""The warm Python of the tests: a program cannot tell its children from processes of their own."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import warm_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children of the warm process are for Linux")
ROOT = Path(__file__).resolve().parents[3]
SEES = """
import io, os, signal, sys, threading, warnings
print(sys.argv, sys.path[:3], os.getcwd(), __name__, globals().get("__file__"), sys.stdin.read())
print(sorted(name for name in os.environ if name.startswith("GIVEN")), os.environ.get("GIVEN"), os.getenv("HOME"))
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE), threading.active_count(), sys.flags)
print(sorted(int(name) for name in os.listdir(f"/proc/{os.getpid()}/fd"))[:3], sys.stdout.isatty(), sys.warnoptions)
print([name for name in ("torch", "triton", "jax") if name in vars(sys)["modules"]])
print(vars(sys)["modules"]["__main__"].__dict__ is globals(), sys.orig_argv[1:])
print("told", file=sys.stderr)
"""
ENDS = {
    "its last line": "pass",
    "a number": "import sys; print(1); sys.exit(3)",
    "a text": "import sys; sys.exit('it ends')",
    "an exception": "def f():\n    raise ValueError('so')\nf()",
    "a cause": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('x') from error",
    "an error of syntax": "def (",
    "a hard exit": "import os; os._exit(5)",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "an interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT)\nwhile True: pass",
    "a handler at exit": "import atexit; atexit.register(print, 'last'); print('first')",
    "a thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
}


def both(words, **options):
    """What a warm child and a process of its own gave, which are equal."""
    command = [sys.executable, *map(str, words)]
    assert warm_python.why_fresh(command, options.get("env", os.environ), options.get("cwd")) is None
    warm = warm_python.run(command, **options)
    fresh = subprocess.run(command, check=False, **options)
    assert (warm.args, warm.returncode) == (fresh.args, fresh.returncode)
    assert (warm.stdout, warm.stderr) == (fresh.stdout, fresh.stderr)
    return warm


@pytest.mark.parametrize("text", [True, False], ids=["text", "bytes"])
@pytest.mark.parametrize("how", ["code", "file", "module"])
def test_a_program_sees_the_same_process(tmp_path, how, text):
    (tmp_path / "seeing.py").write_text(SEES)
    words = {"code": ("-c", SEES), "file": ("seeing.py",), "module": ("-m", "seeing")}[how]
    environment = {**os.environ, "GIVEN": "yes", "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT / "src")))}
    given = "some\ninput" if text else b"some\ninput"
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": text, "input": given}
    found = both(("-W", "error", *words, "one", "two words"), **options)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_the_same_way(end):
    both(("-c", ENDS[end]), capture_output=True, text=True)


def test_settings_are_read_from_the_programs_own_variables(tmp_path):
    code = "from silo.settings import settings; print(settings().home, settings().threads)"
    environment = {**os.environ, "SILO_HOME": str(tmp_path / "own"), "SILO_THREADS": "3"}
    assert both(("-c", code), env=environment, capture_output=True, text=True).stdout == f"{tmp_path / 'own'} 3\n"


def test_a_warning_that_is_an_error_ends_the_program():
    code = "import warnings; warnings.warn('so', UserWarning)"
    assert both(("-W", "error", "-c", code), capture_output=True, text=True).returncode == 1


def test_one_program_leaves_nothing_to_the_next(tmp_path):
    code = "import sys, os, silo; print(hasattr(silo, 'left')); silo.left = 1; os.chdir('/'); os.environ['GIVEN'] = '1'"
    for _ in range(2):
        assert both(("-c", code), capture_output=True, text=True).stdout == "False\n"


def test_numbers_drawn_are_not_those_of_the_program_before():
    command = [sys.executable, "-c", "import random, numpy as np; print(random.random(), np.random.rand())"]
    drawn = [warm_python.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(2)]
    assert not set(drawn[0]) & set(drawn[1])


def test_a_program_that_takes_too_long_is_killed():
    begin = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired) as raised:
        warm_python.run(
            [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(600)"],
            capture_output=True,
            timeout=2,
        )
    assert time.monotonic() - begin < 250
    assert raised.value.output in (b"", b"begun\n")


def test_a_failure_is_an_error_on_request():
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        warm_python.run([sys.executable, "-c", "raise SystemExit(3)"], check=True)


@pytest.mark.parametrize(
    ("words", "variables", "reason"),
    [
        (("-X", "faulthandler", "-c", "pass"), {}, "options"),
        (("-c", "import sys; print('numpy' in sys.modules)"), {}, "the program uses sys.modules"),
        (("-c", "pass"), {"OMP_NUM_THREADS": "1"}, "OMP_NUM_THREADS is read when a process starts"),
        (("-c", "pass"), {"PYTHONHASHSEED": "7"}, "PYTHONHASHSEED"),
        (("-c", "pass"), {"LD_PRELOAD": ""}, "LD_PRELOAD"),
    ],
)
def test_some_programs_get_processes_of_their_own(words, variables, reason):
    command, environment = [sys.executable, *words], {**os.environ, **variables}
    assert reason in warm_python.why_fresh(command, environment)
    assert warm_python.run(command, env=environment).returncode == 0


def test_another_silo_on_the_path_is_not_the_one_that_was_imported(tmp_path):
    (tmp_path / "silo").mkdir()
    (tmp_path / "silo" / "__init__.py").write_text("mark = 'another'\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", "import silo; print(silo.mark)"]
    assert "a silo of its own" in str(warm_python.why_fresh(command, environment))
    assert warm_python.run(command, env=environment, capture_output=True, text=True).stdout == "another\n"


def test_torch_is_imported_for_programs_that_ask_and_for_no_other():
    pytest.importorskip("torch")
    command = [sys.executable, "-c", "import sys; print('torch' in vars(sys)['modules'])"]
    for more, expected in ((warm_python.TORCH, "True\n"), ((), "False\n")):
        assert warm_python.run(command, capture_output=True, text=True, check=True, more=more).stdout == expected


def test_libraries_are_looked_for_where_the_program_is_told(tmp_path):
    code = "import os; print(os.environ.get('LD_LIBRARY_PATH'), open(f'/proc/{os.getppid()}/environ').read())"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = warm_python.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{tmp_path} ")
    assert (
        f"\0LD_LIBRARY_PATH={tmp_path}\0" in done.stdout
    )  # the warm process began with it, as the loader reads it then
