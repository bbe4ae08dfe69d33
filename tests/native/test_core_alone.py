"""The C runtime needs no Python, and does nothing to the program it is in: no output, no exit, no signals, no start."""

import subprocess
from pathlib import Path

import pytest

from native_builds import CORE, archive

# What a program decides for itself; and what runs before anything of the library is called.
PRINTS = {"printf", "vprintf", "fprintf", "vfprintf", "puts", "fputs", "putchar", "putc", "fputc", "fwrite", "perror"}
PRINTS |= {"stdout", "stderr", "dprintf", "vdprintf", "psignal", "syslog", "err", "warn"}
ENDS = {"exit", "_exit", "_Exit", "quick_exit", "abort", "__assert_fail", "raise", "kill", "pthread_exit"}
TAKES = {"signal", "sigaction", "atexit", "on_exit", "__cxa_atexit", "setenv", "getenv", "setlocale", "system"}
STARTS = (".init_array", ".ctors", ".preinit_array")


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """Every file compiled by itself: with no header but native/core's and the system's, and without a warning."""
    folder = tmp_path_factory.mktemp("core")
    subprocess.run(["ar", "x", archive()], cwd=folder, check=True)
    assert {path.stem for path in folder.iterdir()} == {path.stem for path in CORE.glob("*.c")}
    return folder


def listed(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def undefined(path: Path) -> set[str]:
    # Fortified and 64-bit names stand for the plain ones: __printf_chk, fopen64.
    names = {line.split()[-1].partition("@")[0] for line in listed("nm", "-u", str(path)).splitlines() if line.strip()}
    return names | {name.removeprefix("__").removesuffix("_chk") for name in names}


def test_no_file_of_the_core_needs_python(objects):
    for path in sorted(objects.glob("*.o")):
        assert not {name for name in undefined(path) if name.startswith(("Py", "_Py"))}, path.stem


def test_no_file_of_the_core_prints_or_ends_the_program_or_takes_its_signals(objects):
    for path in sorted(objects.glob("*.o")):
        assert not undefined(path) & (PRINTS | ENDS | TAKES), path.stem


def test_nothing_of_the_core_runs_before_it_is_called(objects):
    for path in sorted(objects.glob("*.o")):
        sections = listed("readelf", "-SW", str(path))
        assert not [name for name in STARTS if name in sections], path.stem


def test_every_name_of_the_core_that_others_see_begins_with_silo(objects):
    for path in sorted(objects.glob("*.o")):
        lines = listed("nm", "-g", "--defined-only", str(path)).splitlines()
        assert not [name for line in lines if not (name := line.split()[-1]).startswith("silo_")], path.stem
