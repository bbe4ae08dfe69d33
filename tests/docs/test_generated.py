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


def test_the_reference_of_commands_is_current():
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "command_reference.py"), "--check"], check=False)
    assert done.returncode == 0, "run python scripts/command_reference.py"


def test_the_page_of_errors_and_the_tree_list_every_class():
    classes = {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}
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


def test_the_page_states_errors_that_the_tests_hold():
    pytest.importorskip("numpy")
    place = ROOT / "tests" / "unit" / "kinds" / "triton" / "cpu" / "test_cpu_math.py"
    spec = importlib.util.spec_from_file_location("bounds_of_functions", place)
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    page = (ROOT / "docs" / "cpu.md").read_text(encoding="utf-8")
    table = page.partition("| function | error |")[2].partition("\n\n")[0]
    stated: dict[str, float] = {}
    for names, given in re.findall(r"\| ([a-z0-9, ]+) \| (\d\.\d[^|]*)", table):
        functions = [name for name in names.split(", ") if name != "of every angle"]
        figures = [float(text) for text in re.findall(r"\d\.\d+", given)]
        same = len(figures) == len(functions)
        stated |= {name: figures[place] if same else max(figures) for place, name in enumerate(functions)}
    assert stated.keys() >= tests.MATH.keys()
    # The tests draw arguments and leave a little room; the page says what was measured over all of them.
    for name, (_, allowed, _) in tests.MATH.items():
        assert 0.5 * allowed <= stated[name] <= allowed, name


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    try:
        if ".triton_plugin." in name:
            importlib.import_module("triton")  # which imports these itself, and looks for classes in them at once
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} needs what is not installed: {error}")
    assert doctest.testmod(module).failed == 0
