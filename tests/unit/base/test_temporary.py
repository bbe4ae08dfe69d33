"""Temporary folders: their makers remove them, and later processes remove what killed ones left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from silo import temporary
from silo.settings import child_environment
from silo.temporary import keep_text, own_folder

MAKER = """
import sys, time
from silo.temporary import own_folder
with own_folder("silo-cc-") as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "_swept", False)
    return tmp_path


def age(path, seconds=3600.0):
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.fixture
def maker(tmp_path):
    """A process with a folder, and the folder."""
    made = subprocess.Popen(
        [sys.executable, "-c", MAKER], env=child_environment(TMPDIR=str(tmp_path)), stdout=subprocess.PIPE, text=True
    )
    with made:
        yield made, tmp_path / Path(made.stdout.readline().strip()).name
        made.kill()


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(maker):
    process, left = maker
    (left / "kernel.so").write_bytes(b"x")
    age(left)
    with own_folder("silo-cc-") as own:
        assert left.exists()
        assert Path(own).is_dir()
    assert not Path(own).exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    with own_folder("silo-cute-"):
        assert left.exists()  # a process looks once
    temporary._swept = False
    with own_folder("silo-cute-"):
        assert not left.exists()


def test_what_is_not_such_a_folder_or_young_stays(folder):
    names = ("silo-cc-young", "silo-cc-link", "silo-cc-file", "silo-else", "other")
    (folder / "target").mkdir()
    for name in names:
        path = folder / name
        if name.endswith("link"):
            path.symlink_to(folder / "target")
        elif name.endswith("file"):
            path.write_text("")
        else:
            path.mkdir()
        if not name.endswith(("young", "link")):
            age(path)
    age(folder / "target")
    with own_folder("silo-cc-"):
        assert {path.name for path in folder.iterdir()} > {*names, "target"}


def test_a_sweep_has_a_limited_cost(folder, monkeypatch):
    monkeypatch.setattr(temporary, "_MOST_REMOVED", 3)
    for number in range(5):
        (folder / f"silo-pch-{number}").mkdir()
        age(folder / f"silo-pch-{number}")
    with own_folder("silo-cc-"):
        assert len([*folder.glob("silo-pch-*")]) == 2
    monkeypatch.setattr(temporary, "_swept", False)
    monkeypatch.setattr(temporary, "_MOST_LOOKED_AT", 0)
    with own_folder("silo-cc-"):
        assert len([*folder.glob("silo-pch-*")]) == 2


def test_a_child_made_by_fork_leaves_the_folder_to_its_maker(folder):
    with own_folder("silo-cc-") as own:
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            assert Path(own).is_dir()
    if not child:
        os._exit(0)


def test_kept_texts_are_few_and_none_is_old(folder):
    for number in range(20):
        path = folder / f"silo-failed-{number}.c"
        path.write_text("old")
        age(path, 10 + number)
    age(folder / "silo-failed-0.c", 2 * 24 * 3600)
    kept = keep_text("int f(", ".c")
    names = {path.name for path in folder.glob("silo-failed-*")}
    assert len(names) == 16
    assert Path(kept).name in names
    assert "silo-failed-0.c" not in names
    assert "silo-failed-1.c" in names
    assert Path(kept).read_text() == "int f("
