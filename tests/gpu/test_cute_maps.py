"""Tensor maps that the launcher makes for a kernel of the CuTe DSL, from a bundle; the DSL is not imported to launch.

Needs the DSL to build the bundle, or ``SILO_TEST_CUTE_MAPS_BUNDLE``, which names one of
``tests/samples/cute_tma_kernels.py`` for cuda:sm_90a.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import silo
from gpu_kernels import torch
from silo.errors import SiloError

SAMPLES = Path(__file__).parents[1] / "samples"
GIVEN = os.environ.get("SILO_TEST_CUTE_MAPS_BUNDLE", "")

if not GIVEN and find_spec("nvidia_cutlass_dsl") is None:
    pytest.skip("the CuTe DSL is not installed, and no bundle is given", allow_module_level=True)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    path = GIVEN
    if not path:
        folder = tmp_path_factory.mktemp("maps")
        path = str(folder / "maps.silo")
        file = str(SAMPLES / "cute_tma_kernels.py")
        environment = {**os.environ, "SILO_HOME": str(folder / "store")}
        environment["PYTHONPATH"] = os.pathsep.join((str(SAMPLES), os.environ.get("PYTHONPATH", "")))
        subprocess.run(
            [sys.executable, "-m", "silo", "build", file, "-o", path, "-t", "cuda:sm_90a"], check=True, env=environment
        )
    return silo.load(path)["copy"]


def matrix(rows=256, columns=512):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)


def test_copies_are_right(copy):
    for rows in (256, 1024):
        for _ in range(20):  # arrays take turns: each has maps of its own
            source, target = matrix(rows), torch.zeros(rows, 512, device="cuda", dtype=torch.bfloat16)
            copy(source, target)
            torch.cuda.synchronize()
            assert torch.equal(source, target)


def test_a_graph_keeps_its_maps(copy):
    source, target = matrix(), torch.zeros(256, 512, device="cuda", dtype=torch.bfloat16)
    copy(source, target)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        copy(source, target)
    source.normal_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(source, target)


def test_views_are_right_or_refused(copy):
    whole, target = matrix(512, 1024), torch.zeros(256, 512, device="cuda", dtype=torch.bfloat16)
    refused = 0
    for view in (
        whole[:256, :512],
        whole[::2, :512],
        whole[:256, 1:513],
        whole[:256, ::2],
        whole[:256, 8:520],
        matrix(512, 256).T,
        matrix(1, 512).expand(256, 512),
    ):
        target.zero_()
        try:
            copy(view, target)
        except SiloError:
            refused += 1
            continue
        torch.cuda.synchronize()
        assert torch.equal(view, target)
    assert refused >= 3
    torch.cuda.synchronize()
