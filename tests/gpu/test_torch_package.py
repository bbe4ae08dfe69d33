"""Packages of AOTInductor (``.pt2``) with user kernels on a GPU: made here, run by another process as they are."""

import os
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")

if not torch.cuda.is_available():
    pytest.skip("this torch has no GPU", allow_module_level=True)

pytestmark = [
    pytest.mark.usefixtures("store"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

from packaged_models import Model, WithGrid, wanted  # noqa: E402

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


LINKER = """#!/bin/sh
for argument in "$@"; do
    if [ "$argument" = -shared ]; then exec g++ "$@" -Wl,-Bsymbolic; fi
done
exec g++ "$@"
"""


@pytest.fixture
def own_regex(tmp_path, monkeypatch):
    """A package uses the C++ library that it was compiled with.

    torch's library exports its own copies of ``std::regex``, and where torch was built with an older gcc every package
    crashes in them while it is loaded, also one without kernels (torch 2.11 from its wheel, gcc 13).
    """
    compiler = tmp_path / "compiler"
    compiler.write_text(LINKER)
    compiler.chmod(0o755)
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", (None, str(compiler)))


@pytest.mark.usefixtures("own_regex")
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
