"""The models of ``bench.inductor`` under ``torch.compile`` on the CPU, against eager torch."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from triton.backends import Backend, backends  # noqa: E402

from bench.inductor_models import TRAINED, models  # noqa: E402
from inductor_cpu import finds_triton  # noqa: E402
from silo.integrations import inductor  # noqa: E402
from silo.kinds.triton.programs.backend.named_cpu.compiler import NamedCpuBackend  # noqa: E402
from silo.kinds.triton.programs.backend.named_cpu.driver import NamedCpuDriver  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
QUICK = ("top-k sampling", "median", "gnn")


@pytest.fixture(autouse=True)
def _afresh(monkeypatch, tmp_path):
    from torch.utils import _triton

    monkeypatch.setitem(backends, "cpu", Backend(NamedCpuBackend, NamedCpuDriver))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    _triton.has_triton.cache_clear()
    if not finds_triton():
        pytest.skip("torch finds no Triton")
    with inductor.enable():
        yield
    torch._dynamo.reset()
    _triton.has_triton.cache_clear()


def _check(name):
    torch.manual_seed(0)
    plain, given = models()[name]()
    options = {"cpu_backend": "triton", "fallback_random": True, "compile_threads": 1}
    with torch.set_grad_enabled(name in TRAINED):
        torch.manual_seed(1)
        expected = plain(*given)
        torch.manual_seed(1)
        made = torch.compile(plain, options=options)(*given)
    loose = 2e-2 if expected.dtype is torch.bfloat16 else 1e-4
    torch.testing.assert_close(made, expected, rtol=loose, atol=loose)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_model_gives_what_eager_torch_gives(name):
    _check(name)


@pytest.mark.all
@pytest.mark.parametrize("name", sorted(models().keys() - set(QUICK)))
def test_every_model_gives_what_eager_torch_gives(name):
    _check(name)


SIDE_BY_SIDE = """
import torch
from torch._inductor.runtime import triton_heuristics as heuristics
from silo.integrations import inductor

seen = []
plain = heuristics.CachingAutotuner.run

def run(self, *arguments, **options):
    seen.append((self.heuristic_type.name, dict(self.launchers[0].config.kwargs)))
    return plain(self, *arguments, **options)

heuristics.CachingAutotuner.run = run
x = torch.randn(4, 64, 32, 32)
with inductor.enable():
    made = torch.compile(lambda x: x.square().sum(1), options={"cpu_backend": "triton", "compile_threads": 1})(x)
torch.testing.assert_close(made, x.square().sum(1))
print([(kind, sorted(config.items())) for kind, config in seen])
"""


def test_rows_that_lie_side_by_side_are_added_up_together(tmp_path):
    """In a process of its own: Inductor's code for it depends on what a process compiled before."""
    program = tmp_path / "program.py"
    program.write_text(SIDE_BY_SIDE)
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[('REDUCTION', [('R0_BLOCK', 1), ('XBLOCK', 1024)])]\n"
