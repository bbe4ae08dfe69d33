"""The page of Pallas kernels runs where jax is: its kernels are one file, built, run and shown."""

import json
import shlex
import subprocess
import sys

import pytest
from test_pages import ROOT, blocks, environment

pytest.importorskip("jax", reason="jax is not installed")

PAGE = ROOT / "docs" / "pallas.md"


def run(folder, *words):
    place = {**environment(folder / "home", folder / "store"), "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, *words], cwd=folder, env=place, capture_output=True, text=True, check=False)


def test_the_page_runs_builds_and_inspects_its_kernel(tmp_path):
    (tmp_path / "kernels.py").write_text("\n".join(blocks(PAGE, "python")), encoding="utf-8")
    done = run(tmp_path, "kernels.py")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for text in blocks(PAGE, "sh") for line in text.splitlines() if line.startswith("silo ")]
    assert len(lines) == 3
    for line in lines:
        done = run(tmp_path, "-m", *shlex.split(line))
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    shown = json.loads(run(tmp_path, "-m", "silo", "inspect", "kernels.silo", "--json").stdout)
    assert {one["target"] for one in shown["variants"]} == {"tpu:v5e", "cpu:x86-64-v2"}
