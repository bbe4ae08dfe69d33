"""The folder of an export: written once, touched where it differs, never over what somebody else wrote."""

import os

import pytest

from silo.errors import StoreError
from silo.export.project import RECORD, Differences, compare_folder, read_record, write_folder

FILES = {"a.c": b"a", "silo/b.h": b"b", "tests/c.cpp": b"c"}
OPTIONS = {"tests": True}


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "out"
    write_folder(made, FILES, OPTIONS)
    return made


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_what_is_right_is_not_touched(folder):
    before = times(folder)
    for path in before:
        os.utime(path, ns=(1, 1))
    assert write_folder(folder, FILES, OPTIONS) == Differences()
    assert set(times(folder).values()) == {1}
    assert write_folder(folder, {**FILES, "a.c": b"new"}, OPTIONS).stale == ("a.c",)
    changed = {path.name for path, time in times(folder).items() if time != 1}
    assert changed == {"a.c", RECORD}


def test_each_difference_is_said(folder):
    (folder / "a.c").write_bytes(b"mine")
    (folder / "silo" / "b.h").unlink()
    found = compare_folder(folder, {"a.c": b"a", "silo/b.h": b"b", "new.c": b"n"})
    assert found.lines == (
        "a.c was changed by hand",
        "new.c is missing",
        "silo/b.h is missing",
        "tests/c.cpp belongs to an earlier export",
    )
    assert not compare_folder(folder, {**FILES, "a.c": b"mine", "silo/b.h": b"b"}).edited


def test_what_an_earlier_export_wrote_goes(folder):
    done = write_folder(folder, {"a.c": b"a"}, OPTIONS)
    assert done.superfluous == ("silo/b.h", "tests/c.cpp")
    assert sorted(path.name for path in folder.iterdir()) == ["a.c", RECORD]
    assert set(read_record(folder).files) == {"a.c"}


def test_what_somebody_changed_or_put_there_is_not_overwritten(folder, tmp_path):
    (folder / "a.c").write_bytes(b"mine")
    (folder / "new.c").write_bytes(b"theirs")
    (folder / "build").mkdir()
    wanted = {**FILES, "a.c": b"new", "new.c": b"n", "silo/b.h": b"other"}
    with pytest.raises(StoreError, match=r"a.c was changed by hand, new.c was not written by an export; nothing is"):
        write_folder(folder, wanted, OPTIONS)
    assert (folder / "a.c").read_bytes() == b"mine"
    assert (folder / "silo" / "b.h").read_bytes() == b"b"
    (folder / "a.c").unlink()
    (folder / "new.c").unlink()
    write_folder(folder, wanted, OPTIONS)  # a folder beside, such as of a build, is nobody's matter
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("x")
    with pytest.raises(StoreError, match="is not empty and holds no export"):
        write_folder(other, FILES, OPTIONS)


def test_links_lead_nowhere(folder, tmp_path):
    (folder / "silo" / "b.h").unlink()
    (folder / "silo").rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "silo").symlink_to(elsewhere)
    with pytest.raises(StoreError, match="it is a link out of"):
        write_folder(folder, FILES, OPTIONS)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "no json",
        '{"schema": "export/2", "options": {}, "files": {}}',
        '{"schema": "export/1", "options": {}, "files": {"../x": "00"}}',
        '{"schema": "export/1", "options": {}, "files": {"/etc/x": "00"}}',
    ],
)
def test_a_record_that_is_none_is_an_error(folder, text):
    (folder / RECORD).write_text(text)
    with pytest.raises(StoreError, match="is not the record of an export"):
        write_folder(folder, FILES, OPTIONS)
