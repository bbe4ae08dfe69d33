"""The page about C says what the header says, and its C is C."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "native" / "core" / "silo.h"
PAGE = ROOT / "docs" / "c-and-cpp.md"
BLOCK = re.compile(r"^```c\n(.*?)^```", re.MULTILINE | re.DOTALL)
BEGIN = "#include <silo.h>\n#include <string.h>\n"  # what a piece without its own first lines stands behind


def test_the_table_of_errors_is_the_headers():
    header = HEADER.read_text(encoding="utf-8")
    codes = {name: int(number) for name, number in re.findall(r"\b(SILO_ERROR_\w+) = (\d+)", header)}
    rows = re.findall(r"^\| `(SILO_ERROR_\w+)` \| (\d+) \| \S", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(codes) > 20
    assert [(name, int(number)) for name, number in rows] == list(codes.items())


def test_what_the_page_names_is_in_the_header():
    header = HEADER.read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:SILO|silo)_\w+", PAGE.read_text(encoding="utf-8")))
    beside = {"SILO_SHARED", "SILO_STATIC", "SILO_ZSTD", "SILO_LIBRARY_DIR", "silo_"}  # of builds
    assert sorted(name for name in named - beside if not re.search(rf"\b{name}\b", header)) == []


@pytest.mark.parametrize("number", range(len(BLOCK.findall(PAGE.read_text(encoding="utf-8")))))
def test_its_c_compiles_without_a_warning(number, tmp_path):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    text = BLOCK.findall(PAGE.read_text(encoding="utf-8"))[number]
    source = tmp_path / "block.c"
    source.write_text(text if text.startswith("#include") else BEGIN + text, encoding="utf-8")
    (tmp_path / "kernels.silo").write_bytes(b"\0" * 64)  # for .incbin
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror", "-Wno-unused-function"]
    done = subprocess.run(
        [compiler, "-std=gnu11", "-c", *warnings, f"-I{HEADER.parent}", source.name, "-o", "block.o"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
