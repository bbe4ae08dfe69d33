"""Some operators of torch's own table through Inductor and Silo; ``python -m tests.operators`` runs all of them."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("expecttest", reason="torch's table of operators needs the package expecttest")

from triton.backends import Backend, backends  # noqa: E402

from inductor_cpu import finds_triton  # noqa: E402
from repetitions import one_in  # noqa: E402
from silo.integrations import inductor  # noqa: E402
from silo.kinds.triton.programs.backend.named_cpu.compiler import NamedCpuBackend  # noqa: E402
from silo.kinds.triton.programs.backend.named_cpu.driver import NamedCpuDriver  # noqa: E402
from tests.operators.comparing import compare, names_of, table  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

SAMPLE = [
    ("index_add", "float32"),
    ("nn.functional.embedding", "float32"),
    ("softmax", "bfloat16"),
    ("cumsum", "int64"),
    ("gather", "int64"),
    ("var", "float32"),
    ("argmax", "bfloat16"),
    ("transpose", "float32"),
    ("floor_divide", "int64"),
    ("fmod", "float32"),  # tensors without dimensions, written in place
    ("index_add", "bool"),  # an atomic operation that Triton lacks
    ("kthvalue", "float32"),
    ("median", "float32"),
    ("topk", "bfloat16"),
    ("nn.functional.softplus", "float16"),
]


@pytest.fixture(scope="module")
def known():
    return {names_of(info): info for info in table()}


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


@pytest.mark.parametrize("sample", one_in(3, SAMPLE), ids=str)
def test_an_operator_gives_what_eager_torch_gives(sample, known):
    name, dtype = sample
    (outcome,) = compare(known[name], getattr(torch, dtype), 1, backward=True)
    assert outcome.status == "right", outcome.detail
