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
    classes = {name for name in errors.__all__ if name != "SiloError"}
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) >= classes
    assert set(re.findall(r"(\w+Error)\b", errors.__doc__ or "")) >= classes
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert listed <= set(errors.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} needs what is not installed: {error}")
    assert doctest.testmod(module).failed == 0
