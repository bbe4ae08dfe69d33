"""Packages of AOTInductor (``.pt2``) with user kernels on a GPU: made here, run by another process as they are."""

import os
import subprocess
import sys
import textwrap

import pytest
import triton
import triton.language as tl

import silo

torch = pytest.importorskip("torch", reason="torch is not installed here")

if not torch.cuda.is_available():
    pytest.skip("this torch has no GPU", allow_module_level=True)

pytestmark = [
    pytest.mark.usefixtures("store"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

RUN = """
    import os, sys
    import torch

    folder = sys.argv[1]
    model = torch._inductor.aoti_load_package(os.path.join(folder, "model.pt2"))
    given = torch.load(os.path.join(folder, "arrays.pt"))
    for _ in range(3):
        made = model(*(one.cuda() for one in given["args"]))
        torch.testing.assert_close(made.cpu(), given["wanted"], rtol=1e-4, atol=1e-4)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        later = model(*(one.cuda() for one in given["args"]))
    stream.synchronize()
    torch.testing.assert_close(later.cpu(), given["wanted"], rtol=1e-4, atol=1e-4)
    print("equal")
"""


@triton.jit
def scaled(x, y, out, n, alpha, TWICE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = alpha * tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + i, value * 2 if TWICE else value, mask=i < n)


@triton.jit
def running(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    tl.store(out + row + i, tl.cumsum(tl.load(x + row + i, mask=i < n, other=0.0), axis=0), mask=i < n)


twin = silo.kernel(scaled, tune="off")


@torch.library.triton_op("gpu_samples::packed", mutates_args={})
def packed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(twin)[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), 3.0, TWICE=False, BLOCK=64)
    return out


class Model(torch.nn.Module):
    """A kernel of Triton's own, one more, and one of Silo in a ``triton_op``."""

    def forward(self, x, y):
        out, sums = torch.empty_like(x), torch.empty_like(x)
        n = x.numel()
        scaled[(triton.cdiv(n, 64),)](x, y, out, n, 0.5, TWICE=True, BLOCK=64)
        running[(x.shape[0],)](out, sums, x.shape[1], BLOCK=64)
        return packed(sums, y).relu()


class WithGrid(torch.nn.Module):
    """A kernel of Silo, called with a grid."""

    def forward(self, x, y):
        out = torch.empty_like(x)
        twin[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), 0.25, TWICE=True, BLOCK=128)
        return out + y


def wanted(model, x, y):
    if isinstance(model, WithGrid):
        return 2 * (0.25 * x + y) + y
    return (3.0 * (2 * (0.5 * x + y)).cumsum(1) + y).relu()


@pytest.mark.parametrize("model", [Model, WithGrid])
def test_a_package_with_kernels_runs_in_another_process(model, tmp_path):
    x, y = torch.randn(3, 50, device="cuda"), torch.randn(3, 50, device="cuda")
    exported = torch.export.export(model(), (x, y), strict=True)
    torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
    torch.save(
        {"args": [x.cpu(), y.cpu()], "wanted": wanted(model(), x.cpu(), y.cpu())},
        tmp_path / "arrays.pt",
    )
    cache = tmp_path / "cache"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RUN), str(tmp_path)],
        env={**os.environ, "TRITON_CACHE_DIR": str(cache), "SILO_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "equal" in done.stdout
    assert not list(cache.rglob("*.cubin"))  # the package brings its code
