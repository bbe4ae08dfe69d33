"""The page of CUDA C++ kernels runs where NVRTC is, as far as it does without a GPU: its kernels are one file."""

import json
import shlex
import subprocess
import sys

from test_pages import ROOT, blocks, environment

from cuda_samples import need_nvrtc

need_nvrtc()

PAGE = ROOT / "docs" / "cuda.md"


def silo(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "silo", *words],
        cwd=folder,
        env=environment(folder / "home", folder / "store"),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_page_builds_inspects_and_exports_its_kernel(tmp_path):
    (tmp_path / "kernels.py").write_text("\n".join(blocks(PAGE, "python")), encoding="utf-8")
    lines = [line for text in blocks(PAGE, "sh") for line in text.splitlines() if line.startswith("silo ")]
    assert len(lines) == 4
    for line in lines:
        done = silo(tmp_path, *shlex.split(line)[1:])
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    shown = json.loads(silo(tmp_path, "inspect", "kernels.silo", "--json").stdout)
    assert {one["target"] for one in shown["variants"]} == {"cuda:sm_80", "cuda:sm_90a"}
    assert len(shown["variants"]) >= 8
    assert list((tmp_path / "engine").glob("*.hpp"))


def test_the_page_is_short():
    assert len(PAGE.read_text(encoding="utf-8").split()) <= 1200
