"""The page about frameworks runs as written: its commands make a wheel, and its Python runs where Silo is not."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "frameworks.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS = ("triton", "torch", "tvm_ffi", "numpy")
BARE = "import sys, my_kernels\nassert 'silo' not in sys.modules\n"
WITHOUT = """
import importlib.util
assert importlib.util.find_spec("silo") is None
import my_kernels
try:
    my_kernels.add(None, None, None, 1)
except ImportError as error:
    assert "install apache-tvm-ffi, or give torch tensors" in str(error), error
else:
    raise AssertionError("it calls without tvm-ffi")
"""


def blocks(language):
    return [text for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if kind == language]


def run(words, folder, **environment):
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=folder, env={**given, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(map(str, words))}\n{done.stdout}{done.stderr}"


@pytest.mark.all
@pytest.mark.slow
def test_a_wheel_serves_where_silo_is_not(tmp_path):
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    missing += [name for name in ("cmake", "c++") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    home = {"SILO_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT / "src")}
    (commands,) = blocks("shell")
    for line in commands.splitlines():
        assert line.startswith("silo ")
        run([sys.executable, "-m", *shlex.split(line)], tmp_path, **home)
    (wheel,) = tmp_path.glob("*.whl")
    run([sys.executable, "-m", "venv", "--without-pip", "fresh"], tmp_path)
    python = tmp_path / "fresh" / "bin" / "python"
    words = ["--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel)]
    run([sys.executable, "-m", "pip", *words], tmp_path)
    run([str(python), "-c", WITHOUT], tmp_path)
    # What users install beside it, and nothing of what makes Silo importable here.
    (site,) = (tmp_path / "fresh").glob("lib/python*/site-packages")
    found = {Path(importlib.util.find_spec(name).origin).parents[1] for name in NEEDS[1:]}
    (site / "beside.pth").write_text("\n".join(map(str, found)), encoding="utf-8")
    program = tmp_path / "page.py"
    program.write_text(BARE + "\n".join(blocks("py")), encoding="utf-8")
    # The folder beside holds the metadata of an installed Silo, whose package is not there: torch would ask for it.
    run([str(python), str(program)], tmp_path, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
