"""The models of ``bench.inductor`` under ``torch.compile`` on the CPU, against eager torch."""

from types import SimpleNamespace

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


@pytest.mark.parametrize("workers", [False, True])
def test_rows_that_lie_side_by_side_are_added_up_together(workers, monkeypatch):
    """Also once torch's compile workers have begun, which takes them some seconds: a worker lacks Silo's blocks."""
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.runtime import triton_heuristics as heuristics

    seen = []
    plain = heuristics.CachingAutotuner.run

    def run(self, *arguments, **options):
        config = dict(self.launchers[0].config.kwargs)
        seen.append((self.heuristic_type.name, config, self.compile_results[0].kernel.metadata.cpu_elements_apart))
        return plain(self, *arguments, **options)

    monkeypatch.setattr(heuristics.CachingAutotuner, "run", run)
    monkeypatch.setattr(AsyncCompile, "use_process_pool", classmethod(lambda cls: workers))
    pool = SimpleNamespace(submit=lambda *_: pytest.fail("a worker compiles it"))
    monkeypatch.setattr(AsyncCompile, "process_pool", staticmethod(lambda: pool))
    x = torch.randn(4, 64, 32, 32)
    made = torch.compile(lambda x: x.square().sum(1), options={"cpu_backend": "triton"})(x)
    torch.testing.assert_close(made, x.square().sum(1))
    assert seen == [("REDUCTION", {"XBLOCK": 1024, "R0_BLOCK": 1}, True)]


@pytest.mark.parametrize("pooled", [False, True])
def test_a_kernel_that_workers_do_not_get_is_a_future_if_torch_has_workers(pooled):
    from torch._inductor.codecache import LambdaFuture

    from silo.integrations.inductor.generated_kernels import without_workers

    class Compiling:
        def use_process_pool(self):
            return pooled

    seen = []

    def plain(compiling, *words):
        seen.append((compiling.use_process_pool(), *words))
        return "the kernel"

    compiling = Compiling()
    found = without_workers(plain, compiling, "triton_", "text", "cuda")
    assert isinstance(found, LambdaFuture) == pooled
    assert (found.result() if pooled else found) == "the kernel"
    assert not pooled or found.future.result(timeout=0) == "the kernel"  # torch waits for it among those of workers
    assert seen == [(False, "triton_", "text", "cuda")]
    assert compiling.use_process_pool() == pooled
