"""The page of CuTe DSL kernels runs where the DSL is, as far as it does without a GPU: its kernels are one file."""

import json
import shlex
import sys

import pytest
from test_pages import ROOT, blocks, environment

import warm_python

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

PAGE = ROOT / "docs" / "cute.md"


def silo(folder, *words):
    return warm_python.run(
        [sys.executable, "-m", "silo", *words],
        cwd=folder,
        env=environment(folder / "home", folder / "store"),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_page_builds_inspects_and_exports_its_kernels(tmp_path):
    (tmp_path / "kernels.py").write_text("\n".join(blocks(PAGE, "python")), encoding="utf-8")
    lines = [line for text in blocks(PAGE, "sh") for line in text.splitlines() if line.startswith("silo ")]
    assert len(lines) == 3
    for line in lines:
        done = silo(tmp_path, *shlex.split(line)[1:])
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    shown = json.loads(silo(tmp_path, "inspect", "kernels.silo", "--json").stdout)
    assert {one["kernel"] for one in shown["variants"]} == {"add", "scale", "twice"}
    assert {one["target"] for one in shown["variants"]} == {"cuda:sm_80", "cuda:sm_90a"}
    assert all("registers" in one["resources"] for one in shown["variants"])
    assert {one["kernel"] for one in shown["cases"]} == {"add", "scale", "twice"}
    assert list((tmp_path / "engine").glob("*.hpp"))


@pytest.mark.all
def test_a_second_build_compiles_nothing_and_gives_the_same_bytes(tmp_path):
    (tmp_path / "kernels.py").write_text("\n".join(blocks(PAGE, "python")), encoding="utf-8")
    made = []
    for name in ("one.silo", "two.silo"):
        done = silo(tmp_path, "build", "kernels.py", "-o", name, "--target", "cuda:sm_90a", "-k", "add")
        assert done.returncode == 0, done.stdout + done.stderr
        made.append((tmp_path / name).read_bytes())
    assert "0 compiled" in done.stdout
    assert made[0] == made[1]
