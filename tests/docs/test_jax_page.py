"""The page of calls from programs of jax runs where jax is: its blocks are one program, and one in another process."""

import os
import subprocess
import sys

import pytest
from test_pages import ROOT, blocks

os.environ.setdefault("JAX_PLATFORMS", "cpu")

pytest.importorskip("jax", reason="jax is not installed")
pytest.importorskip("triton", reason="the page compiles Triton kernels")

PAGE = ROOT / "docs" / "jax.md"


def test_the_page_runs(tmp_path):
    """The block that loads the exported program is one of another process."""
    program, other = [], []
    for text in blocks(PAGE, "python"):
        (other if "deserialize" in text else program).append(text)
    assert len(other) == 1
    for number, texts in enumerate((program, other)):
        file = tmp_path / f"program{number}.py"
        file.write_text("\n".join(texts), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(file)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SILO_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
