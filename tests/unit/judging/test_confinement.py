import json
import os
import socket
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from silo.judging.confinement import Confined, Limits, confine, is_sealed, private_files, seal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the measures are Linux's")


def confined(action, *, sealed=True, writable=()):
    """What ``action`` returns, or the error that it raises, in a confined child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            measures = confine(
                Limits(1 << 40, 20, 1 << 20), readable=["/usr", "/dev/null"], writable=writable, descriptors=[writing]
            )
            measures = seal(measures) if sealed else measures
            try:
                said = repr(action())
            except BaseException as error:  # noqa: BLE001  # it is what the test reads
                said = type(error).__name__
            os.write(writing, json.dumps([said, measures.to_json()]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said, measures = json.loads(stream.read())
    os.waitpid(pid, 0)
    return said, Confined.from_json(measures)


def requires(measures, *names):
    missing = dict(measures.missing)
    for name in names:
        if name in missing:
            pytest.skip(f"{name}: {missing[name]}")


def thread():
    done = threading.Event()
    threading.Thread(target=done.set).start()
    return done.wait(5)


@pytest.mark.parametrize(
    ("action", "says"),
    [
        (socket.socket, "PermissionError"),
        (os.fork, "PermissionError"),
        (lambda: subprocess.run(["/usr/bin/true"], check=True), "PermissionError"),
        (lambda: os.open("/dev/null", os.O_RDWR), "PermissionError"),
        (lambda: os.open("/usr/silo-was-here", os.O_CREAT | os.O_WRONLY), "PermissionError"),
        (lambda: Path("/tmp/silo-was-here").mkdir(), "PermissionError"),
        (lambda: Path("/usr/bin/env").unlink(), "PermissionError"),
        (lambda: os.kill(os.getppid(), 0), "PermissionError"),
        (lambda: os.kill(-1, 0), "PermissionError"),
        (lambda: os.memfd_create("x"), "PermissionError"),
        (lambda: os.kill(os.getpid(), 0), "None"),
        (thread, "True"),
        (is_sealed, "True"),
        (lambda: list(Path("/proc/self/fd").iterdir()), "PermissionError"),
        (lambda: Path("/usr/bin/env").read_bytes()[:4], "b'\\x7fELF'"),
    ],
)
def test_sealed_code_keeps_only_harmless_rights(action, says):
    said, measures = confined(action)
    requires(measures, "seccomp", "landlock")
    assert said == says
    assert measures.weaknesses == ()


def test_confined_code_may_start_programs_and_write_into_its_folder(tmp_path):
    def action():
        Path(tmp_path, "x").write_text("here")
        return subprocess.run(["/usr/bin/env"], env={}, stdin=subprocess.DEVNULL, check=True).returncode

    said, measures = confined(action, sealed=False, writable=[tmp_path, "/dev/null"])
    requires(measures, "landlock")
    assert said == "0"
    assert (tmp_path / "x").read_text() == "here"
    assert not is_sealed()


def test_confined_code_neither_reads_nor_writes_elsewhere(tmp_path):
    (tmp_path / "secret").write_text("x")

    def action():
        found = []
        for mode in ("r", "w"):
            try:
                with (tmp_path / "secret").open(mode) as stream:
                    found.append(stream.mode)
            except PermissionError:
                found.append("refused")
        return found

    said, measures = confined(action, sealed=False)
    requires(measures, "landlock")
    assert said == "['refused', 'refused']"
    assert (tmp_path / "secret").read_text() == "x"


def test_confined_code_has_no_network():
    def action():
        try:
            socket.create_connection(("127.0.0.1", listening.getsockname()[1]), timeout=2)
        except OSError:
            return "refused"
        return "connected"

    with socket.create_server(("127.0.0.1", 0)) as listening:
        said, measures = confined(action, sealed=False)
    requires(measures, "network namespace")
    assert said == "'refused'"


def test_weaknesses_are_named():
    every = ("seccomp", "landlock", "network namespace")
    assert Confined(every).weaknesses == ()
    assert Confined(("landlock", "network namespace")).weaknesses == (
        "it can start programs and send signals to this user's processes",
    )
    assert Confined(("seccomp",)).weaknesses == ()
    assert len(Confined(()).weaknesses) == 3


@pytest.mark.parametrize("data", [None, [], {}, {"measures": 1, "missing": {}}, {"measures": [], "missing": []}])
def test_other_json_is_no_confinement(data):
    with pytest.raises(ValueError, match="not the measures"):
        Confined.from_json(data)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root reads other users' files")
def test_root_keeps_reading_alone_if_its_modules_are_another_users(tmp_path, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    (own / "module.py").write_text("x = 1\n")
    os.chown(own, 12345, 12345)
    own.chmod(0o700)
    module = types.ModuleType("silo_private_module")
    module.__file__ = str(own / "module.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    private_files.cache_clear()
    monkeypatch.setattr("silo.judging.confinement._landlock", lambda *_: "")  # of files apart from the folders

    def powers():
        (own / "module.py").read_text()
        code = "print(open('/proc/self/status').read())"
        started = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        found = [open("/proc/self/status").read(), started.stdout]  # noqa: PTH123, SIM115
        return [int(line.split()[1], 16) for text in found for line in text.splitlines() if line.startswith("CapEff")]

    try:
        said, measures = confined(powers, sealed=False)
    finally:
        private_files.cache_clear()
    assert "capabilities" in measures.measures
    assert "another user's" in dict(measures.missing)["user namespace"]
    assert said == "[6, 6]"  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, of the process and of a program that it starts
