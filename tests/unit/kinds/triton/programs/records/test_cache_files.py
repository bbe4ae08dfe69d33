"""Files of Triton's own cache in a bundle: taken by Triton's remote cache, and written as a folder."""

import json
import os
import subprocess
import sys

import pytest

from bundle_samples import put, sample
from silo.bundle.reader import open_bundle
from silo.bundle.verify import verify_bundle
from silo.bundle.writer import write_bundle
from silo.cli import main as cli
from silo.errors import BundleError
from silo.frozen import replace
from silo.kinds.triton.programs.records.cache_files import CacheFiles, write_cache
from silo.kinds.triton.programs.records.journal import journal_of

pytest.importorskip("triton")

ELF = b"\x7fELF" + bytes(60)
# Compiles for a GPU that is not here; what is compiled is counted.
PROGRAM = """
import json
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compiler

stages = []
own = compiler.make_backend

def make_backend(target):
    made = own(target)
    add = made.add_stages
    made.add_stages = lambda *args, **kwargs: (stages.append(1), add(*args, **kwargs))[1]
    return made

compiler.make_backend = make_backend

@triton.jit
def add(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)

types = {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
made = triton.compile(ASTSource(add, types, {(3,): 128}, {}), target=GPUTarget("cuda", 90, 32))
print(json.dumps([len(stages), sorted(made.asm), made.hash]))
"""


def run(folder, **more):
    program = folder / "program.py"
    program.write_text(PROGRAM)
    own = {"TRITON_CACHE_DIR": str(folder / f"cache-{len(list(folder.iterdir()))}"), "SILO_TRITON": "off"}
    done = subprocess.run(
        [sys.executable, str(program)], env={**os.environ, **own, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


REMOTE = {
    "TRITON_CACHE_MANAGER": "triton.runtime.cache:RemoteCacheManager",
    "TRITON_REMOTE_CACHE_BACKEND": "silo.kinds.triton.programs.triton_cache:Backend",
}


def test_triton_compiles_once_and_takes_the_rest_from_the_file(tmp_path, monkeypatch):
    first, _ = run(tmp_path, SILO_TRITON_CACHE=str(tmp_path / "K.silo"), **REMOTE)
    assert first[0] == 1
    assert not journal_of(tmp_path / "K.silo").exists()
    assert verify_bundle(tmp_path / "K.silo") == ()
    (tmp_path / "K.silo").rename(tmp_path / "moved.silo")
    second, _ = run(tmp_path, SILO_TRITON_CACHE=str(tmp_path / "moved.silo"), **REMOTE)
    assert second == [0, *first[1:]]
    plain = tmp_path / "plain"
    monkeypatch.setattr(sys, "argv", ["silo", "cache", "to-triton", str(tmp_path / "moved.silo"), str(plain)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    third, _ = run(tmp_path, TRITON_CACHE_DIR=str(plain))
    assert third == second


def test_without_a_usable_file_triton_compiles_and_a_line_says_so(tmp_path):
    found, log = run(tmp_path, **REMOTE)
    assert found[0] == 1
    assert "SILO_TRITON_CACHE names no file" in log
    (tmp_path / "damaged.silo").write_bytes(b"SILOBNDL" + bytes(100))
    found, log = run(tmp_path, SILO_TRITON_CACHE=str(tmp_path / "damaged.silo"), **REMOTE)
    assert found[0] == 1
    assert log.count("nothing is taken from") == 1
    found, log = run(tmp_path, SILO_TRITON_CACHE=str(tmp_path / "missing" / "K.silo"), **REMOTE)
    assert found[0] == 1
    assert "nothing is kept in" in log


def test_files_are_seen_by_others_before_they_are_folded(tmp_path):
    one, other = CacheFiles(tmp_path / "K.silo"), CacheFiles(tmp_path / "K.silo")
    one.put("KEY", "add.autotune.json", b"{}")
    assert other.get("KEY", ["add.autotune.json", "other"]) == {"add.autotune.json": b"{}"}
    one.close()
    assert CacheFiles(tmp_path / "K.silo").get("KEY", ["add.autotune.json"]) == {"add.autotune.json": b"{}"}


def test_a_group_is_there_once_its_metadata_are(tmp_path):
    files = CacheFiles(tmp_path / "K.silo")
    files.put("KEY", "add.cubin", ELF)
    assert files.get("KEY", ["__grp__add.json"]) == {}
    files.put("KEY", "add.json", b"{}")
    files.put("KEY", "__grp__add.json", b"whatever")
    group = json.loads(files.get("KEY", ["__grp__add.json"])["__grp__add.json"])
    assert group == {"child_paths": ["add.cubin", "add.json"]}


def test_native_code_is_neither_kept_nor_served(tmp_path):
    files = CacheFiles(tmp_path / "K.silo")
    for name, data in (("add.so", ELF), ("add.json", b"{}"), ("__grp__add.json", b"{}")):
        files.put("KEY", name, data)
    assert files.get("KEY", ["add.so", "add.json", "__grp__add.json"]) == {}
    files.put("LAUNCHER", "launcher.cpython-311.so", ELF)
    files.put("DEVICE", "add.cubin", ELF)
    files.close()
    with open_bundle(tmp_path / "K.silo") as bundle:
        assert list(bundle.attachments) == ["triton/DEVICE/add.cubin"]


def attached(path, *names, data=b"x"):
    made = sample(1, 1)
    blobs = dict(made.blobs)
    attachments = tuple((name, put(blobs, "file", data)) for name in sorted(names))
    write_bundle(path, replace(made.contents, attachments=attachments), blobs.get)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "KEY/.hidden",
        "KEY/__grp__add.json",
        "KEY/__grp__other",
        "KEY/lock",
        "KEY/tmp.pid_1",
        "KEY/a\\b",
        "KEY/" + "a" * 220,
        "../add.json",
        "K-1/add.json",
    ],
)
def test_a_name_that_no_recording_has_is_refused_and_served_to_nobody(tmp_path, name):
    """For names that strangers write: they lead out of the folder, or to a list of files that Triton loads unasked."""
    path = attached(tmp_path / "K.silo", "triton/KEY/add.cubin", f"triton/{name}")
    with pytest.raises(BundleError, match="which no recording does"):
        write_cache(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    key, _, file = name.partition("/")
    assert file.startswith("__grp__") or CacheFiles(path).get(key, [file]) == {}


def test_a_list_of_files_names_those_of_its_key_and_no_others(tmp_path):
    path = attached(tmp_path / "K.silo", "triton/KEY/add.json", "triton/KEY/add.cubin", "triton/OTHER/x")
    assert write_cache(path, tmp_path / "out")[2] == 0
    group = json.loads((tmp_path / "out" / "KEY" / "__grp__add.json").read_bytes())
    own = tmp_path / "out" / "KEY"
    assert group == {"child_paths": {name: str(own / name) for name in ("add.cubin", "add.json")}}


@pytest.mark.parametrize("name", ["add.so", "launcher.cpython-311.pyd", "add.dylib"])
def test_native_code_of_the_host_is_not_written_by_its_name(tmp_path, name):
    assert write_cache(attached(tmp_path / "K.silo", f"triton/KEY/{name}"), tmp_path / "out") == (0, 0, 1)
    assert not (tmp_path / "out").exists()


def test_native_code_of_the_host_is_not_written_under_another_name(tmp_path):
    path = attached(tmp_path / "K.silo", "triton/KEY/add.json", "triton/KEY/add.txt", data=ELF)
    assert write_cache(path, tmp_path / "out") == (0, 0, 1)


def test_other_attachments_are_no_files_of_the_cache(tmp_path):
    path = attached(tmp_path / "K.silo", "triton/KEY/../x", "other/KEY/x", "triton/KEY/x")
    assert write_cache(path, tmp_path / "out") == (1, 1, 0)
    assert (tmp_path / "out" / "KEY" / "x").read_bytes() == b"x"


def foreign_file(out):
    (out / "KEY" / "__grp__other.json").write_text("{}")


def foreign_key(out):
    (out / "LAUNCHER").mkdir()


def linked_key(out):
    (out / "KEY").rename(out.parent / "elsewhere")
    (out / "KEY").symlink_to(out.parent / "elsewhere")


def linked_file(out):
    (out / "KEY" / "x").rename(out.parent / "y")
    (out / "KEY" / "x").symlink_to(out.parent / "y")


@pytest.mark.parametrize("change", [foreign_file, foreign_key, linked_key, linked_file])
def test_a_folder_with_entries_of_others_is_refused(tmp_path, change):
    """For folders that others could prepare: Triton loads what lies beside the files that are written."""
    path, out = attached(tmp_path / "K.silo", "triton/KEY/x", "triton/KEY/add.json"), tmp_path / "out"
    assert write_cache(path, out) == write_cache(path, out)  # its own files may be there
    change(out)
    with pytest.raises(BundleError, match="which is not of this bundle"):
        write_cache(path, out)
