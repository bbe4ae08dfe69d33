"""What the pages say about the code is what the code says: errors, modules, docstring examples."""

import doctest
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import silo
from silo import errors

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(silo.__path__, "silo.")
    if module.name not in {"silo._native", "silo.compile.worker"}
)


def test_the_module_index_is_current():
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "module_index.py"), "--check"], check=False)
    assert done.returncode == 0, "run python scripts/module_index.py"


def test_the_page_of_errors_and_the_tree_list_every_class():
    classes = set(errors.__all__)
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == classes - {"SiloError"}
    parents = ["SiloError"]
    drawn = {"SiloError": "SiloError"}
    for branch, name in re.findall(r"^    ([ │├└─]*)(\w+Error)\b", errors.__doc__ or "", re.MULTILINE):
        depth = len(branch) // 4
        parents[depth:] = [name]
        drawn[name] = parents[depth - 1] if depth else name
    assert set(drawn) == classes
    for name, parent in drawn.items():
        assert name == parent or getattr(errors, parent) in getattr(errors, name).__bases__


def test_the_page_states_the_errors_that_the_tests_allow():
    pytest.importorskip("numpy")
    place = ROOT / "tests" / "unit" / "test_cpu_math.py"
    spec = importlib.util.spec_from_file_location("bounds_of_functions", place)
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    page = (ROOT / "docs" / "cpu.md").read_text(encoding="utf-8")
    table = page.partition("| function | error |")[2].partition("\n\n")[0]
    cells = re.findall(r"\| ([a-z0-9, ]+) \| (\d\.\d[^|]*)", table)
    stated = {
        name: max(map(float, re.findall(r"\d\.\d", errors))) for names, errors in cells for name in names.split(", ")
    }
    assert stated.keys() >= {"exp", "log", "tanh", "sin", "cos"}
    assert stated == {name: tests.MATH[name][1] for name in stated}


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} needs what is not installed: {error}")
    assert doctest.testmod(module).failed == 0
