"""A stranger's store against commands and calls: its code does not run, and what it holds is compiled again.

The stranger built it honestly, with a compiler that puts a constructor into every object: keys, hashes and the list of
what was built there are right.
"""

import logging
import os
import shutil
import stat
from pathlib import Path

import pytest

from silo.commands.run_cases import run_cases
from silo.commands.tune_cases import tune_path
from silo.settings import override
from silo.store.store import Store
from twice_kernel import twice

pytest.importorskip("triton", reason="the stores are built from a Triton kernel")

KERNEL = twice('space={"BLOCK": [64, 128]}, key=["n"]')

EVIL = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void begin(void) { close(open("MARK", O_CREAT | O_WRONLY, 0600)); }
"""


class World:
    """A kernel, and the store that a stranger filled for it."""

    def __init__(self, folder: Path) -> None:
        self.source, self.theirs, self.mark = folder / "k.py", folder / "theirs", folder / "mark"
        self.source.write_text(KERNEL, encoding="utf-8")
        (folder / "evil.h").write_text(EVIL.replace("MARK", str(self.mark)), encoding="utf-8")
        compiler = folder / "cc"
        compiler.write_text(f'#!/bin/sh\nexec cc -include {folder}/evil.h "$@"\n', encoding="utf-8")
        compiler.chmod(0o755)
        assert self.runs(self.theirs, cc=str(compiler)), "the constructor works"

    def runs(self, home: Path, *, tune: bool = False, **settings) -> bool:
        """Run the kernel's case with a store, rightly; whether the stranger's code ran."""
        with override(home=home, jobs=1, **settings):
            if tune:
                tune_path(self.source, device="cpu", evaluations=2)
            else:
                (outcome,) = run_cases(self.source, device="cpu", tune="off")
                assert outcome.ok, outcome.message
        ran = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return ran

    def store(self, folder: Path) -> Path:
        """A copy of the stranger's store."""
        return shutil.copytree(self.theirs, folder / "store")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("stranger"))


def test_what_this_user_built_is_found_again(world, tmp_path):
    """Otherwise the tests below prove nothing."""
    assert world.runs(world.store(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("tune", [False, True])
def test_code_in_a_store_of_another_user_does_not_run(world, tmp_path, caplog, tune):
    root = world.store(tmp_path)
    for path in (root, *root.rglob("*")):
        os.chown(path, 12345, 12345)
    with caplog.at_level(logging.WARNING, "silo.store"):
        assert not world.runs(root, tune=tune)
    assert [record.name for record in caplog.records] == ["silo.store"]
    assert "it belongs to user 12345" in caplog.text


def test_code_in_a_store_that_others_may_write_does_not_run(world, tmp_path, caplog):
    root = world.store(tmp_path)
    (root / "blobs").chmod(0o777)
    with caplog.at_level(logging.WARNING, "silo.store"):
        assert not world.runs(root)
    assert "others may write it (mode 777)" in caplog.text


def test_code_that_a_link_brings_in_does_not_run(world, tmp_path):
    root = world.store(tmp_path)
    (root / "jobs").rename(tmp_path / "jobs")
    (root / "jobs").symlink_to(tmp_path / "jobs")
    assert not world.runs(root)


def test_code_that_others_wrote_into_a_private_store_does_not_run(world, tmp_path):
    """One file for which its own rights are all that speaks."""
    root = world.store(tmp_path)
    for path in root.rglob("*"):
        if path.is_file() and path.parent.parent.name == "blobs":
            path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o002)
    assert not world.runs(root)


def test_code_that_nobody_here_built_is_compiled_again(world, tmp_path):
    """Brought in by its user, say from a colleague's store, without the list of what was built there."""
    root = world.store(tmp_path)
    shutil.rmtree(root / "trust")
    before = {path.name for path in (root / "blobs").rglob("*/*")}
    assert not world.runs(root)
    assert {path.name for path in (root / "blobs").rglob("*/*")} > before, "it was compiled, and kept"
    assert Store(root).trust.built()
    assert not world.runs(root), "and is found again, beside what the stranger left"
