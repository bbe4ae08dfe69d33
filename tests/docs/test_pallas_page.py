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
    verdicts = [one["resources"] for one in shown["variants"] if one["target"] == "tpu:v5e"]
    assert verdicts
    assert all(one == "estimated" or one.startswith("accepted by libtpu") for one in verdicts)


@pytest.mark.all
def test_the_page_of_kernels_for_gpus_gives_equal_results_and_a_bundle(tmp_path, monkeypatch):
    pytest.importorskip("triton", reason="the page compiles a Triton kernel")
    pytest.importorskip("absl", reason="Mosaic GPU needs absl-py")
    monkeypatch.chdir(tmp_path)
    Path("moved.py").write_text("\n".join(blocks(ROOT / "docs" / "pallas-on-gpus.md", "python")), encoding="utf-8")
    runpy.run_path("moved.py", run_name="__main__")
    shown = json.loads(CliRunner().invoke(app, ["inspect", "copy.silo", "--json"]).output)
    assert [one["target"] for one in shown["variants"]] == ["cuda:sm_90"]
