"""The source of a build for Python without a GIL: compile-checked here, run where such a Python is."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
# Nothing of the core knows Python: test_core_alone.py.
SOURCES = sorted(path for path in NATIVE.glob("*/*.c") if path.parent.name != "core")


@pytest.mark.parametrize("source", SOURCES, ids=[source.stem for source in SOURCES])
def test_the_source_compiles_without_a_gil(source):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    command = [
        *(compiler, "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-DPy_GIL_DISABLED"),
        *("-I", str(NATIVE / "core"), "-I", sysconfig.get_paths()["include"]),
        *("-include", str(Path(__file__).parent / "free_threaded.h")),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SHARED = """
import sys, threading
from pathlib import Path
from silo._native import __file__ as native
from silo.core.config import Config
from silo.forks import Notices
from silo.core.device import Target
from silo.kinds.triton.programs.records.archive import ForeignWinner
from silo.kinds.triton.programs.records.archive import Archive
from silo.store.privacy import lock_of_place
from silo.store.records import DiskRecords

folder = Path(sys.argv[1])
recording, records, count = Archive(folder / "K.silo"), DiskRecords(folder / "records", Notices()), folder / "count"
count.write_text("0")
errors = []


def work(start):
    try:
        for number in range(start, start + 20):
            target = Target.parse("cpu:x86-64-v3")
            made = ForeignWinner("k", "0" * 64, target, ("n",), (number % 30,), Config.of({"BLOCK": number}))
            assert recording.decide(made) == recording.winner(made.slot)
            records.append("k", {"number": number})
            with lock_of_place(count):
                count.write_text(str(int(count.read_text()) + 1))
    except BaseException as error:
        errors.append(error)


threads = [threading.Thread(target=work, args=(start * 20,)) for start in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors, errors
assert count.read_text() == "80"
assert sorted(record["number"] for record in records.read("k")) == list(range(80))
print(sum(1 for number in range(30) if recording.is_known(ForeignWinner(
    "k", "0" * 64, Target.parse("cpu:x86-64-v3"), ("n",), (number,), Config.of({"BLOCK": 0})).identity)))
"""


def free_threaded():
    """Pythons without a GIL: the one that SILO_TEST_FREE_THREADED names, else those on PATH."""
    named = os.environ.get("SILO_TEST_FREE_THREADED")
    return [named] if named else [found for name in ("python3.13t", "python3.14t") if (found := shutil.which(name))]


@pytest.mark.parametrize("kind", ["this Python", "without a GIL"])
def test_threads_share_a_recording_a_store_and_locks(tmp_path, kind):
    """One object of each, used by four threads at once: nothing is lost, and decisions agree."""
    python = sys.executable
    if kind == "without a GIL":
        found = free_threaded()
        if not found:
            pytest.skip("no Python without a GIL is here: name one with SILO_TEST_FREE_THREADED")
        python = found[0]
        check = [python, "-c", "import silo._native, sys; assert not sys._is_gil_enabled()"]
        if subprocess.run(check, capture_output=True, check=False).returncode != 0:
            pytest.skip(f"{python} has no Silo of its own, or takes its GIL again for it")
    tmp_path.chmod(0o700)
    done = subprocess.run(
        [python, "-c", SHARED, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "30\n"
