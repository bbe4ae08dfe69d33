"""Tutorials run from top to bottom: their files are written, their commands typed, and each shown line is printed.

A block of code whose first line is a comment with a file name is that file. In a ``console`` block a line that begins
with ``$ `` is a command; the lines after it are printed by it, in their order, ``...`` standing for anything. A command
whose shown output ends in ``exit code N`` ends with N, all others with 0.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from triton_entry import SILO, entry_folder

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("tutorial-*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"(?:#|//) ([\w./-]+\.\w+)\n")
TOOLS = {"cmake", "g++"}
OLD_TRITON = ROOT / ".venv-triton36"


def commands(text):
    """The commands of a console block, each with the lines that it prints."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.startswith("> "):
            found[-1] = (found[-1][0] + "\n" + line[2:], found[-1][1])
        else:
            found[-1][1].append(line)
    return found


def missing_line(shown, printed):
    """The first shown line that does not come after the ones before it, or None."""
    rest = iter(printed.splitlines())
    for line in shown:
        pattern = re.compile(r"\s+".join(re.escape(word).replace(r"\.\.\.", ".*") for word in line.split()))
        if line.strip() not in {"", "..."} and not any(pattern.fullmatch(other.strip()) for other in rest):
            return line
    return None


def test_shown_lines_are_compared_in_order():
    assert missing_line(["a ... c", "...", "d"], "a b c\nx\nd\n") is None
    assert missing_line(["d", "a"], "a\nd\n") == "a"
    assert missing_line(["took 1 s"], "took 10 s\n") == "took 1 s"
    assert commands("$ a\nb\n$ c \\\n> d\n") == [("a", ["b"]), ("c \\\nd", [])]


def test_there_are_five_tutorials():
    names = ["tutorial-cpp", "tutorial-kernel", "tutorial-program", "tutorial-team", "tutorial-upgrade"]
    assert [page.stem for page in PAGES] == names


# The first runs each time. The commands of the others start dozens of processes.
USUAL = "tutorial-kernel"


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page.stem == USUAL else pytest.mark.all, id=page.stem) for page in PAGES]
)
def test_the_tutorial_runs(page, tmp_path):
    pytest.importorskip("triton", reason="tutorials compile Triton kernels")
    text = page.read_text(encoding="utf-8")
    if page.stem == "tutorial-program":
        pytest.importorskip("torch", reason="its program is torch's")
    if page.stem == "tutorial-cpp" and (lacking := [tool for tool in TOOLS if shutil.which(tool) is None]):
        pytest.skip(f"needs {', '.join(lacking)}")
    tools, work = tmp_path / "bin", tmp_path / "work"
    tools.mkdir()
    work.mkdir()
    for name, words in (("silo", "-m silo "), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
        (tools / name).chmod(0o755)
    place = [str(entry_folder(tmp_path, SILO)), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SILO_", "TRITON_"))},
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(place),
        "SILO_TRITON": "cpu",
        "SILO_HOME": str(tmp_path / "store"),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "COLUMNS": "600",
        "OLD": str(OLD_TRITON if (OLD_TRITON / "silo-stamp").exists() else sys.prefix),
        "NEW": sys.prefix,
    }
    ran = 0
    for kind, block in BLOCK.findall(text):
        if (named := NAMED.match(block)) and kind not in {"console", "text"}:
            (work / named[1]).parent.mkdir(parents=True, exist_ok=True)
            (work / named[1]).write_text(block, encoding="utf-8")
        for command, shown in commands(block) if kind == "console" else ():
            code = re.fullmatch(r"exit code (\d+)", shown[-1]) if shown else None
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=work,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=300,
            )
            assert done.returncode == (int(code[1]) if code else 0), f"$ {command}\n{done.stdout}"
            lacks = missing_line(shown[:-1] if code else shown, done.stdout)
            assert lacks is None, f"$ {command}\nshould print: {lacks}\nprinted:\n{done.stdout}"
            ran += 1
    assert ran >= 5
