"""Children made by fork of processes that compile, tune and launch; each in a process of its own, with a time limit.

``SILO_TEST_FORKS=10000`` forks as often while threads launch and compile.
"""

import os
import sys
from pathlib import Path

import pytest

from repetitions import repetitions
from timed_program import run_timed

pytest.importorskip("triton")

PROGRAM = Path(__file__).parents[1] / "samples" / "fork_program.py"
LIMIT_S = 240
FORKS = repetitions("SILO_TEST_FORKS", 4, 16)


@pytest.mark.timeout(300 + FORKS)
@pytest.mark.parametrize("what", ["after", "exits", "meanwhile", "held", "many", "pool", "loader", "plain"])
def test_a_child_made_by_fork_works(what, tmp_path):
    if what in ("loader", "plain"):
        pytest.importorskip("torch")
    environment = os.environ | {
        "SILO_HOME": str(tmp_path / "store"),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "SILO_TRITON": "cpu",
        "PYTHONWARNINGS": "ignore",
        "SILO_TEST_FORKS": str(FORKS),
    }
    status, said, complained = run_timed(
        [sys.executable, str(PROGRAM), what], environment, LIMIT_S + (FORKS if what == "many" else 0)
    )
    assert status == 0, (said + complained)[-4000:]


# A signal forks while the C compiler runs, which takes a second here; then the child leaves in three ways.
COMPILING = """
import os, signal, sys
from silo.kinds.triton.cpu.object_build import build
from silo.compile.c_compiler import CCompiler
from silo.errors import CompileError

how, slow = sys.argv[1:]
parent, child = os.getpid(), 0

def forks(*_):
    global child
    child = os.fork()
    if child == 0 and how == "raises":
        sys.exit(7)

signal.signal(signal.SIGALRM, forks)
signal.setitimer(signal.ITIMER_REAL, 0.3)
source = "int f(void) { return 3; }" + " " * (1 << 20) + "int g(void) { return 4; }"
try:
    built = build(source, ("-shared", "-fPIC"), CCompiler((slow,), "slow"))
except CompileError as error:
    assert os.getpid() != parent, error
    assert "was forked while the C compiler of its parent ran" in str(error), error
    sys.exit(7)
assert os.getpid() == parent
assert built.data.startswith(b"\\x7fELF")
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@pytest.mark.parametrize("how", ["raises", "goes on"])
def test_a_fork_while_the_c_compiler_runs_takes_nothing_from_the_parent(how, tmp_path):
    slow = tmp_path / "cc"
    slow.write_text('#!/bin/sh\nsleep 1\nexec cc "$@"\n')
    slow.chmod(0o755)
    command = [sys.executable, "-W", "ignore", "-c", COMPILING, how, str(slow)]
    status, said, complained = run_timed(command, {**os.environ, "TMPDIR": str(tmp_path)}, 60)
    assert status == 0, (said + complained)[-4000:]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cc"]
