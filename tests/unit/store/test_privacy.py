"""A store that somebody else owns or may write is not read: what lies there could be that person's code."""

import logging
import os
import stat
from pathlib import Path

import pytest

from silo.commands import examine_machine as doctor
from silo.commands.cache_actions import clear_store, prune_store, store_usage
from silo.core.launch_info import LaunchInfo
from silo.core.variant import Compiled, CompiledBlob
from silo.errors import StoreError
from silo.forks import Notices
from silo.settings import override
from silo.store import privacy
from silo.store.privacy import Node, NotPrivateError, is_safe_on_the_way, open_private, read_private
from silo.store.records import DiskRecords
from silo.store.store import Store, privacy_of
from silo.store.stored_objects import DiskBlobs, DiskEntries

JOB = "1" * 64
CODE = b"native code"
STRANGER = 12345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def fill(root: Path) -> str:
    """Keep native code the way the compile path does; its sha256."""
    store = Store(root)
    outcome = store.artifacts.put_compiled(JOB, Compiled(LaunchInfo("f", ()), CompiledBlob("so", CODE)))
    store.records.append("k", {"kept": 1})
    return outcome.blob.sha256


@pytest.fixture
def root(tmp_path):
    fill(tmp_path / "store")
    return tmp_path / "store"


def assert_not_used(root: Path, caplog, *words: str) -> None:
    """Nothing of the store is read or changed, which is said once for all stores of the process on it."""
    before = {path: path.lstat().st_mtime_ns for path in [root, *root.rglob("*")]}
    with caplog.at_level(logging.WARNING, "silo.store"):
        for _ in range(2):
            store = Store(root)
            assert store.artifacts.compiled(JOB) is None
            assert list(store.records.read("k")) == []
            assert store.records.keys() == ()
            store.records.append("k", {"new": 1})
            sha256 = store.blobs.put(b"new")
            assert store.blobs.get(sha256) == b"new"
            assert list(store.records.read("k")) == [{"new": 1}]
    assert {path: path.lstat().st_mtime_ns for path in [root, *root.rglob("*")]} == before
    assert len(caplog.records) == 1
    for word in ("is not used", "lost at its end", *words):
        assert word in caplog.text


PARTS = [".", "silo-store.json", "blobs", "artifacts", "jobs", "files", "records", "trust"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("extra", [stat.S_IWGRP, stat.S_IWOTH])
def test_a_store_that_others_may_write_is_not_used(root, caplog, part, extra):
    for absent in ("artifacts", "files"):
        (root / absent).mkdir(mode=0o700, exist_ok=True)
    path = root / part
    path.chmod(stat.S_IMODE(path.stat().st_mode) | extra)
    mode = f"{stat.S_IMODE(path.stat().st_mode):o}"
    assert_not_used(root, caplog, str(path), "others may write it", f"mode {mode}", f"chmod -R go-w {path}")


@as_root
@pytest.mark.parametrize("part", PARTS)
def test_a_store_of_another_user_is_not_used(root, caplog, part):
    for absent in ("artifacts", "files"):
        (root / absent).mkdir(mode=0o700, exist_ok=True)
    os.chown(root / part, STRANGER, STRANGER)
    assert_not_used(root, caplog, f"it belongs to user {STRANGER}, not 0", f"chown -R 0 {root / part}")


def test_a_store_of_another_user_is_not_used_by_anybody(root, caplog, monkeypatch):
    monkeypatch.setattr(privacy.os, "geteuid", lambda: STRANGER)
    monkeypatch.setattr(privacy, "_way_to", lambda root: ([], root))
    assert_not_used(root, caplog, f"not {STRANGER}", "sudo chown -R")


@pytest.mark.parametrize("part", PARTS[1:])
def test_a_link_inside_is_not_followed(root, tmp_path, caplog, part):
    for absent in ("artifacts", "files"):
        (root / absent).mkdir(mode=0o700, exist_ok=True)
    (root / part).rename(tmp_path / "elsewhere")
    (root / part).symlink_to(tmp_path / "elsewhere")
    assert_not_used(root, caplog, str(root / part), "it is a symbolic link")


def foreign_entry(root: Path) -> list[Path]:
    """The files of a store that are read by name."""
    return [path for path in root.rglob("*") if path.is_file() and path.name != "silo-store.json"]


def reads(root: Path) -> list[object]:
    """What is found in a store, part by part, by what reads it."""
    notices = Notices()
    blobs = DiskBlobs(root, notices)
    sha256 = next((root / "blobs").rglob("*/*")).name
    view = blobs.map(sha256)
    return [
        blobs.get(sha256),
        None if view is None else bytes(view),
        blobs.holds(sha256, len(CODE)) or None,
        DiskEntries(root, "jobs", notices).get(JOB),
        next(DiskRecords(root / "records", notices).read("k"), None),
        next(DiskRecords(root / "trust", notices).read("built"), None),
    ]


def test_every_read_sees_what_this_user_wrote(root):
    assert None not in reads(root)


@as_root
def test_no_file_of_another_user_is_read(root, caplog):
    for path in foreign_entry(root):
        os.chown(path, STRANGER, STRANGER)
    with caplog.at_level(logging.WARNING, "silo.store"):
        assert reads(root) == [None] * 6
    assert f"it belongs to user {STRANGER}" in caplog.text


def test_no_file_that_others_may_write_is_read(root):
    for path in foreign_entry(root):
        path.chmod(0o666)
    assert reads(root) == [None] * 6


def test_no_file_is_read_through_a_link(root, tmp_path):
    for number, path in enumerate(foreign_entry(root)):
        path.rename(tmp_path / str(number))
        path.symlink_to(tmp_path / str(number))
    assert reads(root) == [None] * 6


def test_no_file_is_read_from_a_folder_that_others_may_write(root):
    for path in foreign_entry(root):
        path.parent.chmod(0o777)
    assert reads(root) == [None] * 6
    blobs = DiskBlobs(root, Notices())
    with pytest.raises(NotPrivateError, match="others may write it"):
        blobs.put(CODE)


def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(NotPrivateError, match="not a plain file"):
        read_private(tmp_path / "pipe")


def test_a_file_that_was_exchanged_after_the_look_is_not_read(tmp_path, monkeypatch):
    """What counts is the file that was opened, whatever its name means a moment later."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.touch(0o600)
    theirs.touch(0o600)
    theirs.chmod(0o602)
    real = os.open
    monkeypatch.setattr(privacy.os, "open", lambda path, *rest: real(theirs, *rest))
    with pytest.raises(NotPrivateError, match="others may write it"):
        open_private(mine)


def test_a_root_that_somebody_makes_in_between_is_not_written(tmp_path, caplog):
    root = tmp_path / "store"
    store = Store(root)
    root.mkdir()
    root.chmod(0o777)
    with caplog.at_level(logging.WARNING, "silo.store"):
        store.records.append("k", 1)
    assert list(root.iterdir()) == []
    assert list(store.records.read("k")) == [1]
    assert "others may write it" in caplog.text


@pytest.mark.parametrize(
    ("mode", "owner", "group", "safe"),
    [
        (0o40755, 0, 0, True),
        (0o40755, 7, 7, True),
        (0o40755, 8, 8, False),
        (0o40775, 0, 0, False),
        (0o40775, 7, 7, True),  # the user's own group
        (0o40775, 7, 9, False),
        (0o40777, 7, 7, False),
        (0o41777, 0, 0, True),
        (0o41777, 8, 8, False),
        (0o120777, 0, 0, True),
        (0o120777, 7, 7, True),
        (0o120777, 8, 8, False),
        (0o40755, 65534, 65534, True),  # root, to a sandbox that does not know it
    ],
)
def test_what_may_lie_on_the_way(mode, owner, group, safe):
    assert bool(is_safe_on_the_way(Node("/x", mode, owner, group), 7, own_group=7, unmapped=65534)) is safe


def test_a_group_and_an_owner_that_nobody_vouches_for_are_not_safe():
    assert not is_safe_on_the_way(Node("/x", 0o40775, 7, 7), 7)
    assert not is_safe_on_the_way(Node("/x", 0o40755, 65534, 0), 7)


def test_a_folder_above_that_others_may_write_makes_the_store_replaceable(tmp_path, caplog):
    above = tmp_path / "shared"
    above.mkdir()
    fill(above / "store")
    above.chmod(0o777)
    assert_not_used(above / "store", caplog, str(above), "in the place of what it holds", f"chmod go-w {above}")
    caplog.clear()
    above.chmod(0o1777)
    assert Store(above / "store").artifacts.compiled(JOB) is not None
    assert not caplog.records


@as_root
def test_a_folder_above_of_another_user_makes_the_store_replaceable(tmp_path, caplog):
    above = tmp_path / "home"
    above.mkdir()
    fill(above / "store")
    os.chown(above, STRANGER, STRANGER)
    assert_not_used(above / "store", caplog, f"owner {STRANGER}", "SILO_HOME")


def test_a_link_of_ones_own_may_lead_to_the_root(root, tmp_path):
    (tmp_path / "far").symlink_to(root.parent)
    (tmp_path / "way").symlink_to("far/./../" + tmp_path.name + "/far/store")
    for way in (tmp_path / "far" / "store", tmp_path / "way"):
        assert privacy_of(way)
        assert Store(way).artifacts.compiled(JOB) is not None


def test_what_a_link_leads_through_is_looked_at_too(tmp_path):
    (tmp_path / "open").mkdir()
    fill(tmp_path / "open" / "store")
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "way").symlink_to(tmp_path / "open" / "store")
    assert not privacy_of(tmp_path / "way")


@as_root
def test_a_link_of_another_user_leads_nowhere(root, tmp_path):
    (tmp_path / "way").symlink_to(root)
    assert privacy_of(tmp_path / "way")
    os.lchown(tmp_path / "way", STRANGER, STRANGER)
    assert not privacy_of(tmp_path / "way")


def test_links_in_a_circle_end(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert privacy_of(tmp_path / "a" / "store"), "it cannot be opened, so there is nothing to refuse"


def test_looking_takes_one_call_for_each_name(root, monkeypatch):
    looked: list[str] = []
    real = os.lstat
    monkeypatch.setattr(privacy.os, "lstat", lambda path: looked.append(path) or real(path))
    assert privacy_of(root)
    assert len(looked) <= len(root.resolve().parts) + 9


def test_the_commands_on_the_store_leave_it_alone(root, tmp_path):
    """A link in a store that others may write could lead to anything of the user's."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "work").write_text("mine")
    for path in sorted((root / "records").iterdir()):
        path.unlink()
    (root / "records").rmdir()
    (root / "records").symlink_to(precious)
    with override(home=str(root)):
        for command in (store_usage, clear_store, lambda: prune_store(0)):
            with pytest.raises(StoreError, match="symbolic link"):
                command()
    assert (precious / "work").read_text() == "mine"


def test_the_doctor_says_so(root):
    root.chmod(0o777)
    with override(home=str(root)):
        found = doctor._store()
    assert found.state == "optional"
    assert "others may write it (mode 777)" in found.detail
    assert f"chmod -R go-w {root}" in found.detail
