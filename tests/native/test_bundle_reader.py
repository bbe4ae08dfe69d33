"""The reader of bundles: errors, memory, threads, and the names that it knows."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from bundle_samples import sample, sealed
from core_native import NATIVE, compiler
from fuzz import readers
from fuzz.bundle_lister import listing
from fuzz.reader_corpus import corpus
from fuzz.whole_file import CODEC, DAMAGED, FOREIGN, NEWER, TOO_LARGE, TRUNCATED, host_digests
from fuzz.whole_file import refusal as check
from hidden_characters import HIDDEN
from native_builds import ADDRESS, THREAD, archive
from sanitized_program import build_sanitized, run_sanitized
from silo.builtin_plugins import BLOB_KINDS, LAUNCH_OPTIONS, OPTIONS
from silo.bundle.format import CASES_KIND, DOCUMENT_KINDS, FILE_KIND, TRIALS_KIND
from silo.bundle.reader import Bundle
from silo.bundle.writer import write_bundle
from silo.core.device import target_kinds

BEFORE = sorted((Path(__file__).parents[1] / "data" / "before").glob("*.silo"))
NOTHING = ((), (), (), ())
DEFAULT = 0


def refused(data, memory=DEFAULT, known=NOTHING):
    found = check(data, memory, known)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "k.silo"
    made = sample(1, 2)
    write_bundle(path, made.contents, made.read_blob)
    return path.read_bytes()


@pytest.fixture(scope="module")
def manifest(good):
    return Bundle.from_bytes(good).manifest_text


# -- what both read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", BEFORE, ids=lambda path: path.stem)
def test_bundles_that_an_earlier_version_wrote_are_read(path):
    data = path.read_bytes()
    assert check(data) is None
    assert host_digests(data) == listing(data).digests


def test_consent_is_given_to_the_digest_of_the_page(good):
    """Over values of every kind: the lister hashes the file's own text, the reader the rows that it has checked."""
    for data in (good, *corpus()):
        assert check(data) is None
        assert host_digests(data) == listing(data).digests


def test_mutants_of_what_is_written_today_are_read_right_or_refused():
    counts = {}
    for seed, what, data, memory in readers.mutants(20_000, 20_200):
        found, wrong = readers.judge(data, memory)
        assert not wrong, (seed, what, wrong)
        counts[found] = counts.get(found, 0) + 1
    assert counts["taken"] > 15
    assert counts["refused"] > 100


def test_true_and_one_have_an_order(good, manifest):
    """Python calls them equal; in a file they are two values, and the bool comes last."""
    changed = re.sub(rb'"constants":\[\]', b'"constants":[["b",true],["b",1]]', manifest)
    assert changed != manifest
    assert refused(sealed(good, changed, compress=False))[:2] == (DAMAGED, "tables.specializations[0]")
    assert check(sealed(good, changed.replace(b'["b",true],["b",1]', b'["b",1],["b",true]'), compress=False)) is None


# -- errors ------------------------------------------------------------------------------------------------------------


def patched(data, at, form, value):
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    return bytes(changed)


def test_each_fault_has_its_code_field_and_offset(good):
    offset = struct.unpack_from("<Q", good, 16)[0]
    expected = {
        (FOREIGN, "header.magic", 0): b"PK" + good[2:],
        (TRUNCATED, "header", 10): good[:10],
        (TRUNCATED, "header", 0): b"",
        (TRUNCATED, "header.manifest_bytes", 24): good[:-1],
        (DAMAGED, "header.manifest_bytes", 24): good + b"x",
        (DAMAGED, "header.major", 8): patched(good, 8, "<H", 0),
        (DAMAGED, "header.flags", 12): patched(good, 12, "<I", 2),
        (DAMAGED, "header.manifest_offset", 16): patched(good, 16, "<Q", 65),
        (NEWER, "", 2**64 - 1): patched(good, 10, "<H", 10),
        (DAMAGED, "manifest", offset): patched(good, len(good) - 1, "<B", good[-1] ^ 1),
    }
    for (code, field, at), data in expected.items():
        found = refused(data)
        assert found[:3] == (code, field, at)
        assert found[3].startswith("bundle")


def test_the_field_of_a_member_is_named(good, manifest):
    changed = re.sub(rb'"basis":"\w+"', b'"basis":"guessed"', manifest, count=1)
    assert changed != manifest
    assert refused(sealed(good, changed, compress=True))[:2] == (DAMAGED, "kernels[0].variants[0].basis")


def test_a_blob_that_was_changed_is_named(good):
    entry = Bundle.from_bytes(good).blobs[0]
    code, field, offset, text = refused(patched(good, entry.offset, "<B", good[entry.offset] ^ 1))
    assert (code, offset) == (DAMAGED, entry.offset)
    assert field == f"blob {entry.kind} {entry.sha256[:16]}"
    assert text


def test_memory_is_limited_as_in_python(good, manifest):
    raw = sealed(good, manifest, compress=False)
    found = refused(raw, 1)
    assert found[:2] == (TOO_LARGE, "manifest")
    assert check(raw, 64 << 20) is None


def test_what_stands_in_a_file_reaches_no_terminal(good, manifest):
    for hostile in (b"\\u001b]0;title\\u0007", "\u202e".encode(), b"\\u0000", "\U0001f600".encode() * 400):
        changed = manifest.replace(b'"cpu:x86-64-v3"', b'"' + hostile + b'"')
        assert changed != manifest
        code, _, _, text = refused(sealed(good, changed, compress=False))
        assert code == DAMAGED
        assert text.isprintable()


# -- memory and threads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [ADDRESS, THREAD], ids=["address", "thread"])
def test_without_memory_is_an_error_and_threads_decode_in_turn(tmp_path, good, flags):
    wrapped = [f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc")]
    source = Path(__file__).with_name("reader_check.c")
    words = (*flags, *wrapped, f"-I{NATIVE}", source, archive(flags), "-ldl", "-lm", "-pthread")
    program = build_sanitized(tmp_path / "check", compiler("gcc"), *words)
    files = []
    for number, data in enumerate((good, *corpus()[:6])):
        files.append(tmp_path / f"{number}.silo")
        files[-1].write_bytes(data)
    assert run_sanitized(program, *files) == "done\n"


# -- one list of names in both ---------------------------------------------------------------------------------------


def names_of(table):
    text = (NATIVE / "known_names.c").read_text(encoding="utf-8")
    return re.findall(r'"([^"]+)"', re.search(rf"{table}\[\] = \{{(.*?)\}}", text, re.DOTALL)[1])


def test_the_names_that_bundles_may_use_are_the_same():
    assert names_of("LAUNCH_OPTIONS") == list(LAUNCH_OPTIONS)
    assert names_of("EVERY_OPTION") == list(OPTIONS)
    assert names_of("BLOB_KINDS") == list(BLOB_KINDS)
    assert names_of("CHECKED_KINDS") == [kind for kind, (_, checked) in BLOB_KINDS.items() if checked]
    assert names_of("DOCUMENT_KINDS") == list(DOCUMENT_KINDS) == [CASES_KIND, TRIALS_KIND, FILE_KIND]
    assert set(names_of("TARGET_KINDS")) <= set(target_kinds())  # of a newer driver, Python says


def test_the_characters_of_names_are_the_same():
    text = (NATIVE / "printable.c").read_text(encoding="utf-8")
    found = re.findall(r"\{(0x[0-9A-F]+), (0x[0-9A-F]+)\}", text)
    assert [(int(low, 16), int(high, 16)) for low, high in found] == list(HIDDEN)


def test_names_of_plugins_are_the_callers(good, manifest):
    """Kinds of blobs and of targets, and launch options, that nobody here has."""
    changed = manifest.replace(b'"cuda:sm_90"', b'"vulkan:1.3"')
    data = sealed(good, changed, compress=False)
    assert refused(data)[1] == "tables.targets[1]"
    assert check(data, DEFAULT, ((), (), (), ("vulkan",))) is None
    option = re.sub(rb'"entry":', b'"vulkan_waves":3,"entry":', manifest)
    data = sealed(good, option, compress=False)
    assert refused(data)[1] == "tables.launches[0]"
    assert check(data, DEFAULT, ((), ("vulkan_waves",), (), ())) is None
    kind = manifest.replace(b'"ttir"', b'"spirv"').replace(b'"c"', b'"b"')
    data = sealed(good, kind, compress=False)
    assert ".kind" in refused(data)[1]
    assert check(data, DEFAULT, (("b",), (), (), ())) is None


# -- zstd --------------------------------------------------------------------------------------------------------------

# Stands before the C library's: there is no libzstd here.
NO_LIBRARY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
void *dlopen(const char *name, int flags) {
    void *(*real)(const char *, int);
    void *found = dlsym(RTLD_NEXT, "dlopen");
    memcpy(&real, &found, sizeof real);
    return name != 0 && strstr(name, "zstd.so") != 0 ? 0 : real(name, flags);
}
"""
WITHOUT = """
import sys
from pathlib import Path
from silo import _native
import silo.bundle.reader
sys.path[:0] = sys.argv[2:]
from fuzz.whole_file import refusal
data = Path(sys.argv[1]).read_bytes()
def refuse(frame, size):
    raise ValueError("not today")
for codec in ("silo's", lambda frame, size: b"", refuse, None):
    if codec != "silo's":
        _native.set_codec(codec)
    print(refusal(data))
"""


def test_without_libzstd_python_decompresses_and_without_that_the_error_names_the_cure(tmp_path):
    (tmp_path / "shim.c").write_text(NO_LIBRARY)
    shim = tmp_path / "shim.so"
    subprocess.run([compiler("gcc"), "-shared", "-fPIC", str(tmp_path / "shim.c"), "-o", str(shim), "-ldl"], check=True)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(BEFORE[0]), str(Path(__file__).parents[1])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_PRELOAD": str(shim)},
    )
    by_silo, short, raised, none = done.stdout.splitlines() or [done.stderr] * 4
    assert by_silo == "None"
    assert f"({DAMAGED}, 'manifest'" in short
    assert "0 bytes came of a frame" in short
    assert f"({DAMAGED}, 'manifest'" in raised
    assert "not today" in raised
    assert f"({CODEC}, " in none
    assert "install it" in none
    assert "silo export" in none
