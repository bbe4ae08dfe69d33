"""Compilers end with the program that started them, with all that they started, and have a ceiling of memory.

The C compiler here is a script that starts another process, as gcc's driver starts ``cc1``: whoever ends the driver
alone leaves that one running.
"""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from silo.compile.c_compiler import choose_compiler, find_compiler
from silo.compile.compiler_process import compiler_process, run_compiler
from silo.compile.native_build import build
from silo.errors import CompileError, CompilerMissingError
from silo.settings import child_environment, override

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

COMPILER = """#!/bin/sh
case "$*" in *--version*) echo slow 1; exit 0;; esac
echo $$ > PIDS/driver
sh -c 'echo $$ > PIDS/compiler; while :; do sleep 100; done' &
wait
"""

IN_THE_PROGRAM = """
import sys
from silo.compile.c_compiler import find_compiler
from silo.compile.native_build import build
build("int f;", ("-shared",), find_compiler(sys.argv[1]))
"""

IN_A_WORKER = """
import sys
import numpy as np, triton, triton.language as tl, silo

@silo.kernel
@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

twice[(1,)](np.ones(8, np.float32), np.ones(8, np.float32), 8, BLOCK=8)
"""


def is_gone(pid, limit_s=60.0):
    """Whether a process ends within the limit. One that nobody waited for yet has ended."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def read_pid(path, limit_s=60.0):
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text().strip()):
            return int(text)
        time.sleep(0.02)
    raise AssertionError(f"{path} was never written")


def script(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("program", [IN_THE_PROGRAM, IN_A_WORKER], ids=["in the program", "in a worker"])
def test_a_compiler_ends_with_the_program(tmp_path, program, end):
    if program is IN_A_WORKER:
        pytest.importorskip("triton")
    compiler = script(tmp_path / "cc", COMPILER.replace("PIDS", str(tmp_path)))
    (tmp_path / "program.py").write_text(program)
    running = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), str(compiler)],
        env=child_environment(SILO_CC=str(compiler), SILO_HOME=str(tmp_path / "home"), TMPDIR=str(tmp_path)),
        stderr=subprocess.DEVNULL,
    )
    try:
        pids = [read_pid(tmp_path / name) for name in ("driver", "compiler")]
        running.send_signal(end)
        running.wait(timeout=240)
        assert [is_gone(pid) for pid in pids] == [True, True]
    finally:
        running.kill()
        running.wait()


def test_a_compiler_that_is_given_up_ends_with_what_it_started(tmp_path):
    compiler = script(tmp_path / "cc", COMPILER.replace("PIDS", str(tmp_path)))
    with compiler_process([str(compiler)], env=child_environment()):
        pids = [read_pid(tmp_path / name) for name in ("driver", "compiler")]
    assert [is_gone(pid) for pid in pids] == [True, True]


def test_a_compiler_leaves_no_process_and_no_pipe(tmp_path):
    compiler = script(tmp_path / "cc", "#!/bin/sh\necho said >&2; echo made; exit 3\n")
    before = len([*Path("/proc/self/fd").iterdir()])
    done = [run_compiler([str(compiler)], env=child_environment()) for _ in range(3)]
    assert {(one.returncode, one.stdout, one.stderr) for one in done} == {(3, b"made\n", b"said\n")}
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not [pid for pid in children if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"]


def test_a_child_made_by_fork_leaves_the_compiler_to_its_parent(tmp_path):
    compiler = script(tmp_path / "cc", "#!/bin/sh\nread _\necho read >&2\n")
    reading, writing = os.pipe()
    with compiler_process([str(compiler)], env=child_environment(), stdin=reading) as process:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            os.write(writing, b"go on\n")
            assert process.communicate()[1] == b"read\n"
    if not child:
        os._exit(0)
    os.close(reading)
    os.close(writing)


def test_the_ceiling_of_memory_is_named_with_its_cure():
    """For texts that a compiler expands without end: it is stopped before the machine has no memory left."""
    text = "#define A(x) x,x,x,x,x,x,x,x,x,x\nint a[]={A(A(A(A(A(A(A(1)))))))};\n"
    compiler = find_compiler(None)
    with override(compile_bytes=150 << 20), pytest.raises(CompileError, match=r"may take 150 MiB.*SILO_COMPILE_BYTES"):
        build(text, ("-shared", "-fPIC"), compiler)
    with override(compile_bytes=0), pytest.raises(CompileError) as refused:
        build("int f(", ("-shared", "-fPIC"), compiler)
    assert "SILO_COMPILE_BYTES" not in str(refused.value)
    assert build("int f;", ("-shared", "-fPIC"), compiler).data.startswith(b"\x7fELF")


@pytest.mark.parametrize("words", ["{}", "'{}' -O1", '"{}"', " {} "])
def test_a_compiler_whose_path_has_a_space(tmp_path, words):
    folder = tmp_path / "my tools"
    folder.mkdir()
    compiler = script(folder / "my cc", '#!/bin/sh\nexec cc "$@"\n')
    found = find_compiler(words.format(compiler))
    assert found.command[0] == str(compiler)
    assert build("int f;", ("-shared", "-fPIC"), found).data.startswith(b"\x7fELF")


def test_a_path_with_a_space_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CompilerMissingError, match="my tools/cc' was not found"):
        find_compiler(f"{tmp_path}/my tools/cc")
    assert choose_compiler("ccache gcc", {"ccache": "/usr/bin/ccache"}) == ("/usr/bin/ccache", "gcc")
