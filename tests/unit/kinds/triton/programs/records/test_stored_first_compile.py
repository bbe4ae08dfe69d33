"""The hash of Triton's installation and the modules of C that its drivers build, kept for later processes."""

import os
import pkgutil
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from silo.kinds.triton.front.adapter.first_compile import HostModule, KeyFiles, hashed_files
from silo.kinds.triton.programs.records.stored_first_compile import StoredFirstCompile
from silo.machine.process_session import session
from silo.settings import override
from triton_programs import TUNED, program

pytest.importorskip("torch", reason="Triton's driver for NVIDIA's GPUs asks torch for dtypes here")

PARTS = """
import os, tempfile
from pathlib import Path
import triton.runtime.build as building
import triton.runtime.cache as cache
import triton.runtime.autotuner as autotuner
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
own_key, own_build = cache.triton_key, building._build
own_key.cache_clear()  # the warm process of such programs has worked it out
SOURCE = '''
#include <Python.h>
static PyObject *five(PyObject *self, PyObject *none) { return PyLong_FromLong(NUMBER); }
static PyMethodDef methods[] = {{"five", five, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "made", 0, -1, methods};
PyMODINIT_FUNC PyInit_made(void) { return PyModule_Create(&module); }
'''
def built(number=5, **more):
    return building.compile_module_from_src(src=SOURCE.replace("NUMBER", str(number)), name="made", **more).five()
def no_compiler():
    def refused(*given, **more):
        raise RuntimeError("a C compiler was called")
    building.subprocess.check_call = refused
def hashed():
    return own_key.cache_info().currsize
"""
BOTH = TUNED + PARTS


def run(home, code, begin=BOTH, **more):
    return program(begin + code, SILO_HOME=str(home), SILO_COMPILE_AHEAD="0", **more)


CALL = """
with silo.accelerate():
    t[(1,)](x, z, 100)
    key, number = cache.triton_key(), built()
    assert autotuner.triton_key() == key if hasattr(autotuner, "triton_key") else True
assert (cache.triton_key, building._build) == (own_key, own_build)
assert getattr(autotuner, "triton_key", own_key) is own_key
"""


@pytest.fixture
def home(tmp_path):
    """A store in which a program has kept both."""
    found = tmp_path / "home"
    run(found, CALL + "assert hashed() and number == 5\n")
    return found


def test_a_second_process_hashes_nothing_and_needs_no_c_compiler(home):
    run(home, "no_compiler()\n" + CALL + "assert not hashed() and own_key() == key and number == 5\n")


def test_a_key_that_triton_has_worked_out_already_is_triton_s(home):
    run(home, "own_key()\n" + CALL + "assert key == own_key()\n")


def test_another_installation_is_hashed(home):
    """As if a file of Triton's had been replaced since."""
    changed = """
from silo.kinds.triton.front.adapter import first_compile
own_files = first_compile.hashed_files
first_compile.hashed_files = lambda package: [*own_files(package), Path(__file__)]
"""
    run(home, changed + CALL + "assert hashed() and key == own_key()\n")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Triton's walk imports packages of other backends
def test_listed_are_all_files_that_triton_reads():
    package = Path(find_spec("triton").origin).parent
    listed = {str(one) for one in hashed_files(package)}
    for folder in ("compiler", "backends", "language"):
        for found in pkgutil.walk_packages([str(package / folder)], prefix=f"triton.{folder}."):
            finder: Any = found.module_finder
            assert finder.find_spec(found.name).origin in listed
    assert {str(package / "runtime" / "cache.py")} <= listed
    assert any("libtriton" in one for one in listed)
    assert KeyFiles.of(package) == KeyFiles.of(package)


@pytest.fixture
def package(tmp_path):
    names = ["runtime/cache.py", "compiler/a.py", "backends/b/__init__.py", "language/c.py", "_C/libtriton.so"]
    for name in names:
        file = tmp_path / "triton" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("text")
    return tmp_path / "triton"


def replace_file(package):
    file, status = package / "compiler" / "a.py", (package / "compiler" / "a.py").stat()
    other = package / "compiler" / "b.txt"
    other.write_text("tuxt")
    other.replace(file)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        replace_file,
        lambda package: (package / "compiler" / "new.py").touch(),
        lambda package: (package / "backends" / "b" / "deep").mkdir() or (package / "backends/b/deep/x.py").touch(),
        lambda package: (package / "language" / "c.py").unlink(),
        lambda package: os.utime(package / "runtime" / "cache.py", (1, 1)),
    ],
    ids=["replaced", "added", "deep", "removed", "touched"],
)
def test_every_change_of_a_file_counts(package, change):
    before = KeyFiles.of(package)
    assert KeyFiles.of(package) == before
    (package / "compiler" / "__pycache__").mkdir()
    (package / "compiler" / "__pycache__" / "a.pyc").touch()
    (package / "compiler" / "notes.txt").touch()
    assert KeyFiles.of(package) == before
    change(package)
    assert KeyFiles.of(package).state != before.state


def test_a_missing_file_is_an_error(package):
    (package / "runtime" / "cache.py").unlink()
    with pytest.raises(OSError, match=r"cache\.py"):
        KeyFiles.of(package)


SETTLED = KeyFiles("ab" * 32, "cd" * 32, 0)


@pytest.mark.parametrize("fault", ["none", "young", "during", "files", "late"])
def test_a_hash_is_kept_only_if_its_files_were_the_same_before_and_after(tmp_path, fault):
    listed = {
        "none": [SETTLED],
        "young": [KeyFiles(SETTLED.place, SETTLED.state, time.time_ns())],
        "during": [SETTLED, KeyFiles(SETTLED.place, "ef" * 32, 0)],
        "files": [],
        "late": [SETTLED],
    }[fault]
    calls = []

    def files():
        calls.append(1)
        if not listed:
            raise OSError("gone")
        return listed[min(len(calls), len(listed)) - 1]

    with override(home=str(tmp_path)):
        first = StoredFirstCompile()
        if fault != "late":
            first.keep()
        assert first.installation(lambda: "3.9.0-key", files) == "3.9.0-key"
        if fault == "late":
            assert session().store.files.get(SETTLED.place) is None
            first.keep()
        kept = session().store.files.get(SETTLED.place)
        assert (kept is not None) == (fault in ("none", "late"))
        found = StoredFirstCompile().installation(lambda: "again", lambda: SETTLED)
        assert found == ("3.9.0-key" if kept else "again")
        assert StoredFirstCompile().installation(lambda: "new", lambda: KeyFiles(SETTLED.place, "01" * 32, 0)) == "new"


def test_host_code_is_loaded_with_the_consent_of_this_users_store_alone(tmp_path):
    module = HostModule("made", "12" * 32)
    with override(home=str(tmp_path)):
        first = StoredFirstCompile()
        first.keep()
        assert first.build(module, lambda: b"code") == b"code"
        assert StoredFirstCompile().build(module, lambda: b"other") == b"code"
        # Somebody puts another object there, for which nobody vouches.
        session().store.files.put(module.key, {"so": b"foreign"})
        assert StoredFirstCompile().build(module, lambda: b"made again") == b"made again"
        assert StoredFirstCompile().build(module, lambda: b"once more") == b"once more"


@pytest.mark.parametrize("where", ["blob", "trust"])
def test_damaged_code_and_code_that_nobody_vouches_for_is_built_again(home, where):
    if where == "trust":
        (home / "trust" / "built.jsonl").unlink()
    else:
        for blob in (home / "blobs").rglob("*"):
            if blob.is_file():
                blob.write_bytes(blob.read_bytes()[:-1] + b"\0")
    said = run(home, CALL + "assert number == 5\n")
    assert "made is built again by Triton" in said if where == "trust" else "damaged" in said
    run(home, "no_compiler()\n" + CALL + "assert number == 5\n")


def test_other_source_headers_elsewhere_and_a_programs_own_builder_are_not_the_stores(home, tmp_path):
    run(
        home,
        f"""
no_compiler()
def fails(**more):
    try:
        built(**more)
    except RuntimeError as error:
        return "C compiler" in str(error)
    return False
with silo.accelerate():
    t[(1,)](x, z, 100)
    assert fails(number=6) and fails(include_dirs=[{str(tmp_path)!r}]) and fails(ccflags=["-DX"])
    asked = []
    def impl(*given):
        asked.append(given[0])
        raise RuntimeError
    triton.knobs.build.impl = impl
    try:
        built()
    except RuntimeError:
        pass
    assert asked == ["made"]
""",
    )


def test_a_program_that_tunes_nothing_keeps_neither(tmp_path):
    home = tmp_path / "home"
    run(home, "with silo.accelerate():\n    k[(1,)](x, y, z, 64, 2.0, BLOCK=64)\n    built()\n", begin=PARTS)
    assert not list(home.glob("files/*/*"))


def test_a_store_that_cannot_be_written_is_said_once(tmp_path):
    home = tmp_path / "home"
    home.write_text("")  # a file
    said = run(home, CALL + "assert hashed() and number == 5\n")
    assert said.count("cannot be written") == 1, said
