"""What first calls say on standard error: where it is a terminal, where it is none, with logging and without."""
# pyright: reportAttributeAccessIssue=false

import io
import logging
import os
import pty
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from silo import status_line
from silo.settings import override
from silo.status_line import announce, working


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Standard error, a terminal of a program that configured no logging."""
    made = Terminal()
    # Not sys.stderr: pytest puts its own there between the fixture and the test.
    monkeypatch.setattr(status_line, "sys", SimpleNamespace(stderr=made, modules=sys.modules))
    foreign = status_line._is_foreign
    root, own = logging.getLogger(), logging.getLogger("silo")
    before = [*root.handlers, *own.handlers]  # of what other tests imported
    root.setLevel(logging.WARNING)
    own.setLevel(logging.NOTSET)

    def of_this_test(one):
        return foreign(one) and one not in before and not type(one).__module__.startswith("_pytest")

    monkeypatch.setattr(status_line, "_is_foreign", of_this_test)
    monkeypatch.setattr(status_line, "_PERIOD_S", 0.01)
    return made


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def shown(text):
    """What a terminal shows in the end: a carriage return goes back, blanks overwrite."""
    lines = []
    for line in text.split("\n"):
        columns = []
        for part in line.split("\r"):
            columns[: len(part)] = part
        lines.append("".join(columns).rstrip())
    return "\n".join(lines)


def test_a_line_on_a_terminal(terminal):
    announce("compiled f")
    assert terminal.getvalue() == "silo: compiled f\n"


def test_nothing_where_there_is_no_terminal(terminal, monkeypatch):
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    announce("compiled f")
    with working("compiling f"):
        assert status_line._line._tasks == []
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("stream", [None, "closed"])
def test_nothing_where_standard_error_is_gone(terminal, monkeypatch, stream):
    if stream is None:
        monkeypatch.setattr(status_line.sys, "stderr", None)
    else:
        terminal.close()
    announce("compiled f")
    with working("compiling f"):
        pass


def test_quiet_is_quiet(terminal):
    with override(quiet=True), working("compiling f"):
        announce("compiled f")
        logging.getLogger("silo").warning("something")
        assert terminal.getvalue() == ""
        logging.getLogger("silo").error("broken")
    assert terminal.getvalue() == "silo: broken\n"


def test_the_log_of_a_library_is_shown_from_the_level_that_was_asked_for(terminal, monkeypatch):
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    log = logging.getLogger("silo")
    with override(log="info"):
        announce("compiled f")
        log.debug("a detail")
        assert terminal.getvalue() == "silo: compiled f\n"
    with override(log="warning"):
        announce("compiled g")
        log.warning("careful")
    assert terminal.getvalue() == "silo: compiled f\nsilo: careful\n"
    assert log.level == logging.NOTSET
    assert log.handlers == []


def test_a_program_with_its_own_log_gets_records_and_nothing_else(terminal):
    root, records = logging.getLogger(), []
    handler = logging.Handler()
    handler.emit = records.append
    root.addHandler(handler)
    before = root.level
    try:
        root.setLevel(logging.WARNING)
        announce("compiled f")
        assert (records, terminal.getvalue()) == ([], "")
        root.setLevel(logging.INFO)
        announce("compiled f")
        with working("compiling f"):
            pass
        with override(log="debug"):
            logging.getLogger("silo").debug("a detail")
    finally:
        root.setLevel(before)
        root.removeHandler(handler)
    assert [record.getMessage() for record in records] == ["compiled f", "a detail"]
    assert terminal.getvalue() == ""


def test_a_task_that_takes_long_is_logged_while_it_runs(terminal, monkeypatch):
    monkeypatch.setattr(status_line, "SLOW_S", 0.03)
    root, records = logging.getLogger(), []
    handler = logging.Handler()
    handler.emit = records.append
    root.addHandler(handler)
    before = root.level
    try:
        root.setLevel(logging.INFO)
        with working("compiling f") as task:
            task.note = "LLVM"
            until(lambda: records)
        assert records[0].getMessage() == "compiling f: LLVM, 0 s"
        assert len(records) == 1, "at most every ten seconds"
        with working("compiling g"):
            pass
    finally:
        root.setLevel(before)
        root.removeHandler(handler)
    assert len(records) == 1
    assert terminal.getvalue() == ""
    until(lambda: status_line._line._thread is None)


def test_a_notebook_shows_what_a_terminal_does(terminal, monkeypatch):
    """Its standard error is no terminal, but a person reads it as it is written."""
    monkeypatch.setattr(status_line, "SLOW_S", 0.03)
    output = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr(status_line.sys, "stderr", output)
    with working("tuning f"):
        until(lambda: "tuning f" in output.getvalue())
    assert shown(output.getvalue()) == ""
    announce("tuned f")
    assert shown(output.getvalue()).splitlines() == ["silo: tuned f"]
    with override(quiet=True):
        announce("tuned g")
    assert "tuned g" not in output.getvalue()


def test_progress_is_rewritten_in_place_and_leaves_nothing(terminal, monkeypatch):
    monkeypatch.setattr(status_line, "SLOW_S", 0.03)
    with working("tuning f") as task:
        until(lambda: "tuning f" in terminal.getvalue())
        task.note = "3 of 16 configs"
        until(lambda: "3 of 16 configs" in terminal.getvalue())
        assert "\n" not in terminal.getvalue()
    assert shown(terminal.getvalue()) == ""
    announce("tuned f")
    assert shown(terminal.getvalue()).splitlines() == ["silo: tuned f"]


def test_what_is_fast_shows_no_progress(terminal):
    with working("compiling f"):
        time.sleep(0.05)
    assert terminal.getvalue() == ""


def test_tasks_of_several_threads_share_the_line(terminal, monkeypatch):
    monkeypatch.setattr(status_line, "SLOW_S", 0.0)
    leave = threading.Event()

    def work(number):
        with working(f"compiling f{number}"):
            leave.wait(30)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: "(and 2 more)" in terminal.getvalue())
    leave.set()
    for thread in threads:
        thread.join()
    assert shown(terminal.getvalue()) == ""
    until(lambda: status_line._line._thread is None)


def test_an_error_ends_the_progress(terminal, monkeypatch):
    monkeypatch.setattr(status_line, "SLOW_S", 0.0)
    with pytest.raises(ValueError, match="no"), working("compiling f"):  # noqa: PT012
        until(lambda: "compiling" in terminal.getvalue())
        raise ValueError("no")
    assert shown(terminal.getvalue()) == ""
    assert status_line._line._tasks == []


def test_a_child_shows_nothing_of_what_its_parent_does(terminal):
    with working("compiling f"):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            line = status_line._line
            os.write(write, repr((line._tasks, line._thread)).encode())
            with working("compiling g"):
                pass
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert os.read(read, 100) == b"([], None)"


PROGRAM = """
import sys
import numpy as np
import triton, triton.language as tl
{before}
import silo

@silo.kernel(space={{"BLOCK": [64, 128]}}, key=["n"], grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

x = np.ones(1000, np.float32)
out = np.zeros_like(x)
{call}
assert (out == 2).all()
"""
OWN = "scale(x, out, x.size)"
TRITON = """
import torch
from silo import status_line
from silo.kinds.triton.programs.backend import stages
status_line.SLOW_S = stages.SLOW_S = 0.0
x, out = torch.from_numpy(x), torch.from_numpy(out)
triton.jit(scale.fn)[(8,)](x, out, 1000, BLOCK=128)
"""


def errors_of(folder, call=OWN, before="", *, terminal=True, **variables):
    """What a program prints on standard error."""
    (folder / "program.py").write_text(PROGRAM.format(before=before, call=call))
    environment = {**os.environ, "SILO_HOME": str(folder / "store"), "TRITON_CACHE_DIR": str(folder / "triton")}
    environment |= variables
    outer, inner = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen([sys.executable, str(folder / "program.py")], env=environment, stderr=inner)
    os.close(inner)
    found = b""
    try:
        while part := os.read(outer, 1 << 16):
            found += part
    except OSError:  # how a terminal ends
        pass
    os.close(outer)
    assert process.wait() == 0, found.decode()
    return shown(found.decode().replace("\r\n", "\n")).strip()


def test_a_first_call_says_so_and_the_next_process_says_nothing(tmp_path):
    pytest.importorskip("triton", reason="the kernel is Triton's")
    *progress, line = errors_of(tmp_path).splitlines()
    assert all(message.startswith(("silo: compiling ", "silo: tuning ")) for message in progress)  # of a slow machine
    assert line.startswith("silo: tuned scale[n~2^10] on cpu:")
    assert ": 2 configs in " in line
    assert "winner BLOCK=" in line
    assert errors_of(tmp_path) == ""
    *progress, line = errors_of(tmp_path, call=OWN.replace(")", ", BLOCK=256)")).splitlines()
    assert all(message.startswith("silo: compiling ") for message in progress)
    assert line.startswith("silo: compiled scale for cpu:")
    assert "(BLOCK=256)" in line


def test_a_first_call_says_nothing_where_nobody_looks(tmp_path):
    pytest.importorskip("triton", reason="the kernel is Triton's")
    assert errors_of(tmp_path, terminal=False, SILO_TUNE="off") == ""
    assert "compiled" in errors_of(
        tmp_path, OWN.replace(")", ", BLOCK=256)"), terminal=False, SILO_TUNE="off", SILO_LOG="info"
    )
    before = "import logging; logging.basicConfig(format='mine %(levelname)s %(message)s', level='INFO')"
    *progress, line = errors_of(tmp_path, OWN.replace(")", ", BLOCK=512)"), before, SILO_TUNE="off").splitlines()
    assert line.startswith("mine INFO compiled scale for cpu:")
    assert all(one.startswith("mine INFO compiling scale for cpu:") for one in progress)  # of a slow machine


def test_a_slow_compilation_by_tritons_own_call_says_so(tmp_path):
    pytest.importorskip("torch", reason="the call is Triton's, with torch's tensors")
    pytest.importorskip("triton", reason="the kernel is Triton's")
    (line,) = errors_of(tmp_path, TRITON, SILO_TRITON="cpu").splitlines()
    assert line.startswith("silo: compiled scale for cpu:")
    assert "kept in Triton's cache" in line
