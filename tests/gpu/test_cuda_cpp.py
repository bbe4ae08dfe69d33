"""Kernels in CUDA C++ on a GPU: the example's, right from a bundle in a process without NVRTC, and a tuned product."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import silo
from gpu_kernels import torch
from silo.errors import SiloError
from silo.kinds.cuda_cpp.nvrtc import find_nvrtc, load_nvrtc
from silo.settings import override

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "cuda_kernels.py"

try:
    NVRTC = load_nvrtc(find_nvrtc())
except SiloError as error:
    pytest.skip(str(error), allow_module_level=True)

pytestmark = pytest.mark.usefixtures("store")


def run(folder, *words, **more):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SILO_HOME": str(folder / "store"), **more}
    return subprocess.run(
        [sys.executable, "-m", "silo", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda")
    major, minor = torch.cuda.get_device_capability()
    target = f"cuda:sm_{major}{minor}"
    done = run(folder, "build", str(EXAMPLE), "-o", "k.silo", "-t", target, "--tune", "off")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_twelve_kernels_are_right_without_nvrtc(bundle):
    print(f"NVRTC {NVRTC.release} ({NVRTC.place.origin}, {NVRTC.place.build})")
    done = run(bundle, "run", "k.silo", "--device", "cuda", SILO_NVRTC=str(bundle / "absent.so"))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    kernels = [
        "add",
        "scale",
        "total",
        "layer_norm",
        "softmax",
        "transpose",
        "histogram",
        "saxpy4",
        "tensor_cores",
        "clipped",
        "block_scan",
        "matmul",
    ]
    assert all(re.search(rf"\b{name}\b", done.stdout) for name in kernels)


def test_doctor_names_the_nvrtc_in_use(tmp_path):
    said = run(tmp_path, "doctor").stdout
    assert "nvrtc" in said
    assert NVRTC.release in said


def test_a_product_of_54_configs_tunes_and_is_right(tmp_path):
    sys.path.insert(0, str(EXAMPLE.parent))
    try:
        import cuda_kernels
    finally:
        sys.path.remove(str(EXAMPLE.parent))
    a, b = (torch.randn(512, 512, device="cuda") for _ in range(2))
    c = torch.empty_like(a)
    with override(tune="auto", tune_budget_s=60.0):
        cuda_kernels.matmul(a, b, c, 512, 512, 512)
    torch.testing.assert_close(c, a @ b, atol=1e-2, rtol=1e-3)
    said = cuda_kernels.matmul.explain(a, b, c, 512, 512, 512)
    print(said)
    assert "BLOCK_X" in str(said)


def test_the_blocks_of_a_cooperative_launch_meet_at_the_barrier_of_the_grid():
    text = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(const int *x, int *sums, int *o, int n) {
  cg::grid_group grid = cg::this_grid();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int i = blockIdx.x; i < n; i += gridDim.x) sum += x[i];
    sums[blockIdx.x] = sum;
  }
  grid.sync();
  int all = 0;
  for (int b = 0; b < gridDim.x; b++) all += sums[b];
  for (int i = grid.thread_rank(); i < n; i += grid.size()) o[i] = x[i] + all;
}
"""
    made = silo.cuda(text, threads=64, cooperative=True, grid=lambda a: (a.num_sms,))
    x = torch.arange(4000, dtype=torch.int32, device="cuda")
    sums, o = torch.zeros(1024, dtype=torch.int32, device="cuda"), torch.zeros_like(x)
    for _ in range(20):
        o.zero_()
        made(x, sums, o, 4000)
        assert torch.equal(o, x + x.sum(dtype=torch.int32))
    # More blocks than the device runs at once: the driver refuses the launch, and the next one works.
    with pytest.raises(silo.SiloError) as caught:
        made[1 << 20](x, sums, o, 4000)
    print(caught.value)
    o.zero_()
    made(x, sums, o, 4000)
    assert torch.equal(o, x + x.sum(dtype=torch.int32))
    with pytest.raises(silo.SiloError, match="pass cooperative=True"):
        silo.cuda(text, threads=64, grid=(4,))(x, sums, o, 4000)


def test_a_tensor_on_another_place_and_views_are_served(tmp_path):
    kernel = silo.cuda(
        "__global__ void twice(const float *x, float *out, int n) { int i = threadIdx.x; out[i] = 2 * x[i]; }",
        threads=64,
        grid=(1,),
        signature={"out": "out"},
    )
    x = torch.arange(65, dtype=torch.float32, device="cuda")
    out = torch.zeros(64, device="cuda")
    kernel(x[1:], out, 64)  # begins at an odd address
    assert torch.equal(out, 2 * x[1:])
    with pytest.raises(silo.SiloError, match="pass float32"):
        kernel(x.double(), out, 64)
