"""The page of Pallas kernels runs where jax is: its kernels are one file, built, run and shown."""

import json
import os
import runpy
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_pages import ROOT, blocks

from silo.cli.main import app

os.environ.setdefault("JAX_PLATFORMS", "cpu")

pytest.importorskip("jax", reason="jax is not installed")

PAGE = ROOT / "docs" / "pallas.md"


def test_the_page_runs_builds_and_inspects_its_kernel(tmp_path, monkeypatch):
    """In this process, where jax is loaded once."""
    monkeypatch.chdir(tmp_path)
    Path("kernels.py").write_text("\n".join(blocks(PAGE, "python")), encoding="utf-8")
    runpy.run_path("kernels.py", run_name="__main__")
    lines = [line for text in blocks(PAGE, "sh") for line in text.splitlines() if line.startswith("silo ")]
    assert len(lines) == 3
    for line in lines:
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}"
    shown = json.loads(CliRunner().invoke(app, ["inspect", "kernels.silo", "--json"]).output)
    assert {one["target"] for one in shown["variants"]} == {"tpu:v5e", "cpu:x86-64-v2"}
