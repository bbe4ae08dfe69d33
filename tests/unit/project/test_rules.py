"""The rules of CONTRIBUTING are checked: what breaks one is found, and nothing in the tree does."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import conventions  # noqa: E402
import module_index  # noqa: E402


@pytest.mark.parametrize(
    ("place", "text", "word"),
    [
        ("store/store.py", "import os\nx = os.environ['A']", "environment"),
        ("store/store.py", "from os import getenv", "environment"),
        ("settings.py", "import os\nx = os.environ['A']", None),
        ("core/arrays.py", "import silo._native", "native"),
        ("core/arrays.py", "from silo import _native", "native"),
        ("core/arrays.py", "def f():\n    import_module('silo._native')", "native"),
        ("launch/native.py", "from silo._native import Guard", None),
        ("calls/resolver.py", "import triton", "triton is imported"),
        ("kinds/triton/front/triton_source.py", "from triton.runtime import jit", "triton.runtime is imported"),
        ("kinds/triton/front/triton_source.py", "m = import_module('triton.knobs')", "triton.knobs is"),
        ("kinds/triton/front/triton_source.py", "m = sys.modules.get('triton.runtime')", "triton.runtime is known"),
        ("kinds/triton/front/ceiling_kernels.py", "import triton\nimport triton.language as tl", None),
        ("kinds/triton/front/ceiling_kernels.py", "import triton.runtime", "triton.runtime is imported"),
        ("kinds/triton/front/adapter/gpu_back_end.py", "import triton.compiler", None),
        ("kinds/triton/programs/backend/driver.py", "import triton.backends", None),
        ("store/store.py", "import threading\nx = threading.Lock()", "Lock may be held"),
        ("store/store.py", "from threading import Condition", "Condition may be held"),
        ("store/store.py", "import queue\nx = queue.Queue()", "Queue may be held"),
        ("store/store.py", "from silo.forks import Condition, Mutex\nimport threading\nt = threading.Thread()", None),
        ("forks.py", "import threading\nx = threading.RLock()", None),
        ("tuner/spilling.py", "most = {'hip': 32}", "drivers/hip"),
        ("launch/gpu.py", "x = target.kind == 'cuda'", "drivers/cuda"),
        ("core/device.py", "example = 'hip:gfx942'", "drivers/hip"),
        ("core/device.py", "def f():\n    'hip'\n    raise Error('for cuda and hip')", None),
        ("drivers/hip/hip_device.py", "x = 'hip', 'gfx942'", None),
        ("drivers/hip/hip_device.py", "x = 'cuda'", "drivers/cuda"),
    ],
)
def test_who_may_know_what(place, text, word):
    found = conventions.broken_rules(place, text)
    assert bool(found) == (word is not None), found
    if word is not None:
        assert all(one.startswith(f"{place}:") for one in found)
        assert any(word in one for one in found), found


def test_no_module_is_excused_that_names_no_driver():
    for kind, excused in conventions._NAMES_A_DRIVER.items():
        pattern = conventions._DRIVERS[kind]
        for place in excused:
            path = ROOT / "src" / "silo" / place
            texts = [one.read_text(encoding="utf-8") for one in ([path] if path.is_file() else path.rglob("*.py"))]
            words = {word for text in texts for word in re.findall(r'"([^"\n]*)"', text)}
            assert any(pattern.fullmatch(word) for word in words), place


def test_loose_tests_and_repeated_names_are_found(tmp_path):
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_a.py").write_text("")
    assert len(conventions.loose_tests(tmp_path)) == 1
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "thing.py").write_text("")
    (tmp_path / "a" / "other.py").write_text("")
    assert conventions.repeated_names(tmp_path) == [
        "thing.py is the name of 3 modules: a/thing.py, b/thing.py, c/thing.py"
    ]


def test_the_tree_keeps_the_rules():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "conventions.py")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_index_has_every_module():
    home = ROOT / "src" / "silo"
    page = (ROOT / "docs" / "modules.md").read_text(encoding="utf-8").partition(module_index.BEGIN)[2]
    folders = [path.parent for path in home.rglob("__init__.py")]  # a template lies in none
    modules = [path.stem for folder in folders for path in folder.glob("*.py") if path.name != "__init__.py"]
    packages = [folder.relative_to(home).as_posix() for folder in folders]
    assert page.count("\n| `") == len(modules)
    assert page.count("\n### ") == len(packages)
    for package in packages:
        assert f"\n### {'silo' if package == '.' else package}\n" in page


def test_the_contracts_hold_for_folders_that_are_yet_to_come():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    named = {one["name"]: one for one in contracts}
    assert named["layers"]["exhaustive"]
    assert named["Triton: programs over compilers over the front"]["exhaustive"]
    assert named["a kind imports no other kind"]["modules"] == ["silo.kinds.*"]
    assert named["a driver imports no other driver"]["modules"] == ["silo.drivers.*"]
    layers = {f"silo.{layer}" for layer in named["layers"]["layers"]}
    by_name = named["kinds, drivers and integrations are found by name"]
    assert layers <= {*by_name["source_modules"], *by_name["forbidden_modules"]}
    assert layers == set(named["modules beside the layers import none of them"]["forbidden_modules"])
