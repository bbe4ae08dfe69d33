"""The C runtime needs no Python, and does nothing to the program it is in: no output, no exit, no signals, no start."""

import subprocess

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


def lines_of(objects, *command):
    """The lines that a tool of binutils prints of each file, by the file's name; it starts once for all files."""
    paths = sorted(objects.glob("*.o"))
    text = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=True).stdout
    heads = {f"File: {path}" if command[0] == "readelf" else f"{path}:": path.stem for path in paths}
    found: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        if line in heads:
            lines = found.setdefault(heads[line], [])
        else:
            lines.append(line)
    assert found.keys() == set(heads.values())
    assert any(found.values())
    return found


@pytest.fixture(scope="module")
def undefined(objects):
    """By file, the names that others define; a fortified name (__printf_chk) counts as the plain name too."""
    names = {
        name: {line.split()[-1].partition("@")[0] for line in lines}
        for name, lines in lines_of(objects, "nm", "-u").items()
    }
    return {
        name: found | {one.removeprefix("__").removesuffix("_chk") for one in found} for name, found in names.items()
    }


def test_no_file_of_the_core_needs_python(undefined):
    assert not {
        name: found
        for name, names in undefined.items()
        if (found := {one for one in names if one.startswith(("Py", "_Py"))})
    }


def test_no_file_of_the_core_prints_or_ends_the_program_or_takes_its_signals(undefined):
    assert "malloc" in set().union(*undefined.values())
    assert not {name: found for name, names in undefined.items() if (found := names & (PRINTS | ENDS | TAKES))}


def test_nothing_of_the_core_runs_before_it_is_called(objects):
    sections = {name: "\n".join(lines) for name, lines in lines_of(objects, "readelf", "-SW").items()}
    assert all(".text" in text for text in sections.values())
    assert not {name: found for name, text in sections.items() if (found := [one for one in STARTS if one in text])}


def test_every_name_of_the_core_that_others_see_begins_with_silo(objects):
    for file, lines in lines_of(objects, "nm", "-g", "--defined-only").items():
        assert not [name for line in lines if not (name := line.split()[-1]).startswith("silo_")], file
