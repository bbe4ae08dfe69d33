"""What the pages say about the code is what the code says: errors, modules, docstring examples."""

import doctest
import importlib
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


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} needs what is not installed: {error}")
    assert doctest.testmod(module).failed == 0
