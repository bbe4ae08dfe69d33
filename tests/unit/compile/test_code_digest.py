"""The digest of code: under names that moves and renames keep, computed once for equal bytes."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

import silo
from silo.compile import identity
from silo.compile.identity import CodeFile, KnownDigest, code_digest, digest_of, digest_table

SOURCE = Path(silo.__file__).parent


# ---- names that are kept ----


def test_modules_may_be_moved_and_renamed(tmp_path):
    copy = tmp_path / "silo"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = _digest_of(copy, "silo.kinds.triton.cpu", "silo.kinds.triton.front")
    moves = {
        "silo.kinds.triton.cpu.emit": "silo.kinds.triton.cpu.text",
        "silo.kinds.triton.cpu.ops": "silo.kinds.triton.cpu.elements",
        "silo.kinds.triton.cpu": "silo.parts.native",
        "silo.kinds.triton.front.ttir": "silo.kinds.triton.front.parser",
        "silo.kinds.triton.front": "silo.parts.reading.front",
    }
    for old, new in moves.items():
        _move(copy, old, new)
    (copy / "parts" / "__init__.py").write_text('"""Parts of a compiler."""\n')
    (copy / "parts" / "reading" / "__init__.py").write_text('"""Its front."""\n')
    assert _digest_of(copy, "silo.parts.native", "silo.parts.reading.front") == before
    assert _digest_of(copy, "silo.parts") == before


def _move(copy, old, new):
    """Move a module or package of the copy, and mend what names it."""
    base, to = (copy.joinpath(*name.split(".")[1:]) for name in (old, new))
    to.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("", ".py"):
        path = Path(f"{base}{suffix}")
        if path.is_dir():
            shutil.copytree(path, to, dirs_exist_ok=True)
            shutil.rmtree(path)
        elif path.exists():
            path.rename(f"{to}{suffix}")
    parent, _, name = old.rpartition(".")
    new_parent, _, new_name = new.rpartition(".")
    whole = re.compile(rf"^(\s*)from {re.escape(parent)} import {name}$", re.MULTILINE)
    for path in copy.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        mended = re.sub(rf"(?<!-m )\b{re.escape(old)}\b(?=[.: \n\")])", new, text)
        mended = whole.sub(rf"\1from {new_parent} import {new_name} as {name}", mended)
        if mended != text:
            path.write_text(mended, encoding="utf-8")


def _digest_of(copy, *packages):
    code = "import sys; from silo.compile.identity import code_digest; print(code_digest(*sys.argv[1:]))"
    words = [sys.executable, "-c", code, *packages]
    environment = {**os.environ, "PYTHONPATH": str(copy.parent)}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout


def _project(**texts):
    """The digest of a project of these modules."""
    files = [CodeFile("silo", f"{name}.py", text.encode()) for name, text in texts.items()]
    return digest_of(files, lambda _: False).digest


def test_a_module_that_goes_and_contents_that_are_swapped_count():
    one, other, both = "def f(): return 1", "def f(): return 2", "from silo.a import f\nfrom silo.b import f as g"
    known = _project(a=one, b=other, both=both)
    assert _project(a=other, b=one, both=both) != known
    assert _project(a=one, b=other, both="from silo.b import f\nfrom silo.a import f as g") != known
    assert _project(b=one, a=other, both="from silo.b import f\nfrom silo.a import f as g") == known
    assert _project(a=one, both=both) != known
    assert _project(a=one, b=other, both=both, empty='"""Nothing."""') == known


def test_what_an_import_leads_to_counts_however_far_it_is():
    ends = {"a": "x = 1", "b": "x = 2"}
    chain = {"a1": "from silo.a import x", "b1": "from silo.b import x"}
    for step in range(1, 6):
        chain |= {f"{side}{step + 1}": f"from silo.{side}{step} import x" for side in "ab"}
    used = _project(**ends, **chain, user="from silo.a6 import x\nprint(x)")
    assert _project(**ends, **chain, user="from silo.b6 import x\nprint(x)") != used


def test_modules_that_import_each_other_have_a_digest():
    circle = _project(a="from silo.b import g\ndef f(): return 1", b="from silo.a import f\ndef g(): return f")
    assert _project(a="from silo.b import g\ndef f(): return 2", b="from silo.a import f\ndef g(): return f") != circle


def test_files_count_by_name_and_by_folders_only_where_names_are_equal():
    def found(**files):
        return digest_of([CodeFile("silo", path, data) for path, data in files.items()], lambda _: False).digest

    known = found(**{"one/a.h": b"1", "one/b.h": b"2"})
    assert found(**{"two/three/a.h": b"1", "two/b.h": b"2"}) == known
    assert found(**{"one/a.h": b"2", "one/b.h": b"1"}) != known
    assert found(**{"one/a.h": b"1", "two/a.h": b"2"}) != found(**{"one/a.h": b"2", "two/a.h": b"1"})
    assert found(**{"a.h": b"1 // one"}) == found(**{"a.h": b"1"})
    assert found(**{"a.bin": b"1 // one"}) != found(**{"a.bin": b"1"})


# ---- digests that were computed before ----

PACKAGES = ("silo.kinds.binary", "silo.kinds.binary")


@pytest.fixture
def remembered(monkeypatch, tmp_path):
    """The file of remembered digests, in a folder of its own for byte code."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    code_digest.cache_clear()
    yield Path(cache_from_source(identity.__file__)).with_name(identity.SHIPPED)
    code_digest.cache_clear()


def test_a_digest_is_computed_once_for_equal_bytes(remembered, monkeypatch):
    found = code_digest(*PACKAGES)
    assert [one.digest for one in identity.decode_table(remembered.read_bytes()).values()] == [found]
    monkeypatch.setattr("silo.compile.identity.digest_of", None)
    code_digest.cache_clear()
    assert code_digest(*PACKAGES) == found
    remembered.unlink()
    code_digest.cache_clear()
    with pytest.raises(TypeError):
        code_digest(*PACKAGES)


def test_a_wheel_brings_the_digests_of_its_code(remembered, monkeypatch, tmp_path):
    found = code_digest(*PACKAGES)
    remembered.unlink()
    shipped = tmp_path / "code_digests.json"
    shipped.write_bytes(digest_table([PACKAGES]))
    monkeypatch.setattr(identity, "_shipped_file", lambda: shipped)
    monkeypatch.setattr("silo.compile.identity.digest_of", None)
    code_digest.cache_clear()
    assert code_digest(*PACKAGES) == found


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff",
        b"{}",
        b'"code-digests/2"\n',
        b'"code-digests/1"\n["x",{"digest":"short","names":{}}]\n',
        b'"code-digests/1"\n["x"]\n',
    ],
)
def test_a_damaged_table_counts_as_none_and_is_written_again(remembered, damage):
    remembered.parent.mkdir(parents=True)
    remembered.write_bytes(damage)
    found = code_digest(*PACKAGES)
    assert [one.digest for one in identity.decode_table(remembered.read_bytes()).values()] == [found]


def test_an_entry_counts_while_its_names_are_what_they_were(remembered):
    identity.remember("content", KnownDigest("a" * 32, {"silo.x": True, "silo.y": False}))
    assert identity.known_digest("content", lambda name: name == "silo.x") is not None
    assert identity.known_digest("content", lambda name: True) is None
    assert identity.known_digest("other", lambda name: name == "silo.x") is None


def test_old_entries_make_room(remembered):
    for number in range(identity._MOST + 3):
        identity.remember(f"content {number}", KnownDigest("a" * 32, {}))
    kept = [*identity.decode_table(remembered.read_bytes())]
    assert (kept[0], kept[-1], len(kept)) == ("content 3", f"content {identity._MOST + 2}", identity._MOST)


def test_nothing_is_written_where_python_writes_no_byte_code(remembered, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    identity.remember("content", KnownDigest("a" * 32, {}))
    assert not remembered.exists()


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(remembered, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "file"))
    assert code_digest(*PACKAGES)
