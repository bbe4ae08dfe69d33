"""Kernels under ``torch.compile``, ``torch.export`` and in models. Cases are grouped: a compile takes seconds."""
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false, reportInvalidTypeForm=false

import copy
import importlib
import io
import pickle
import sys

import pytest
import triton
import triton.language as tl

import silo
from silo.errors import ArgumentError

torch = pytest.importorskip("torch", reason="torch is not installed")

from triton.backends import Backend, backends  # noqa: E402

from silo.backends.cpu.triton_plugin.named_cpu.compiler import NamedCpuBackend  # noqa: E402
from silo.backends.cpu.triton_plugin.named_cpu.driver import NamedCpuDriver  # noqa: E402
from torch_model import Model  # noqa: E402
from torch_operators import OPERATORS, add, axpy, flat, softmax  # noqa: E402

importlib.import_module("torch._dynamo")  # what torch.compile loads; the seam is there from then on

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _cpu_only():
    """An installation that is older than the name ``cpu`` has no entry point of it."""
    from torch.utils import _triton

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(backends, "cpu", Backend(NamedCpuBackend, NamedCpuDriver))
        _triton.has_triton.cache_clear()
        if not _triton.has_triton():
            pytest.skip("torch finds no Triton")
        patch.setattr(importlib.import_module("torch._inductor.config"), "compile_threads", 1, raising=False)
        yield
    _triton.has_triton.cache_clear()
    torch._dynamo.reset()


@triton.jit
def plain_add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


tuned_add = triton.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})], key=["n"])(
    plain_add
)
twin = silo.kernel(plain_add, tune="off")


@torch.library.triton_op("samples::library_add", mutates_args={})
def library_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(twin)[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out


@torch.library.custom_op("samples::custom_add", mutates_args={"out"})
def custom_add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    twin[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)


@custom_add.register_fake
def _(x, y, out):
    return None


def every_form(x, y, alpha):
    """Each form of a call: every sum below is of the one before and y."""
    n = x.numel()
    one = torch.empty_like(x)
    plain_add[(triton.cdiv(n, 1024),)](x, y, one, n, BLOCK=1024)
    two = torch.empty_like(x)
    tuned_add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](one, y, two, n)
    three = torch.empty_like(x)
    twin[(triton.cdiv(n, 1024),)](two, y, three, n, BLOCK=1024)
    four = torch.empty_like(x)
    add(three, y, four, n)  # without a grid
    five = torch.empty_like(x)
    add[(triton.cdiv(n, 256),)](four, y, out=five, n=n)  # with one, and a config that the kernel's space has
    six = library_add(five, y)
    seven = torch.empty_like(x)
    custom_add(six, y, seven)
    eight = OPERATORS["add"](seven, y, n)
    axpy(y, eight, n, alpha)  # in place
    return eight.sin()


def test_every_form_of_a_call_compiles_whole():
    x, y = torch.randn(3000), torch.randn(3000)
    compiled = torch.compile(every_form, fullgraph=True, dynamic=True)
    for size, alpha in ((3000, 0.5), (500, 0.25)):
        wanted = (x[:size] + (8 + alpha) * y[:size]).sin()
        torch.testing.assert_close(compiled(x[:size], y[:size], alpha), wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(every_form(x, y, 0.5), (x + 8.5 * y).sin(), rtol=1e-4, atol=1e-5)


@flat()
@triton.jit
def stated(x, y, n, BACK: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if BACK:
        tl.store(x + i, tl.load(y + i, mask=i < n), mask=i < n)
    else:
        tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


def test_operators_of_one_kernel_differ_where_its_code_does():
    """With another constexpr the kernel writes to another argument: torch has to know of both writes."""

    def there_and_back(x, y):
        a, b = x * 1, y * 1
        stated(a, b, 8, False)
        a = a + 1
        stated(a, b, 8, BACK=True)
        return a, b

    x, y = torch.arange(8.0), torch.zeros(8)
    a, b = torch.compile(there_and_back, fullgraph=True, backend="aot_eager")(x, y)
    assert torch.equal(a, x)
    assert torch.equal(b, x)


def test_gradients_through_a_compiled_operator():
    x, y = torch.randn(64, requires_grad=True), torch.randn(64, requires_grad=True)
    compiled = torch.compile(lambda x, y: OPERATORS["mul"](x.sin(), y, 64).cos(), fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(x, y).sum(), (x, y))
    wanted = torch.autograd.grad((x.sin() * y).cos().sum(), (x, y))
    torch.testing.assert_close(found, wanted)


@silo.kernel(tune="off")
@triton.jit
def without_grid(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)


def test_what_cannot_be_traced_says_why():
    def compiled(function, *args):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # of torch's many, by its text
            torch.compile(function, fullgraph=True, backend="eager")(*args)
        return str(caught.value)

    x = torch.zeros(64)
    assert "declares none: give silo.kernel a grid=" in compiled(lambda x: without_grid(x, 64, BLOCK=64), x)
    assert "the call gives num_warps: set that in the kernel's space" in compiled(
        lambda x: add(x, x, x * 1, 64, num_warps=8), x
    )
    assert "the call leaves out n" in compiled(lambda x: add(x, x, x * 1), x)
    wants = torch.zeros(64, requires_grad=True)
    assert "writes to y, of which a gradient is wanted" in compiled(lambda x, y: axpy(x, y * 1, 64, 1.0), x, wants)

    def unknown_block(x):
        out = torch.empty_like(x)
        softmax(x, out, 4, 16, int(x.sum().item()))
        return out

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert "BLOCK is a constexpr of softmax" in compiled(unknown_block, x)


def called(a, b):
    axpy(a, b, a.numel(), 2.0)
    return b


def with_grid(a, b):
    axpy[(1,)](a, b, a.numel(), 2.0, BLOCK=1024)
    return b


def test_calls_with_tensors_that_stand_for_others():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    x, y = torch.randn(16), torch.randn(16)
    for call in (called, with_grid):
        with FakeTensorMode() as mode:
            assert call(mode.from_tensor(x), mode.from_tensor(y)).shape == (16,)
        with pytest.raises(ArgumentError, match=r"argument 'x' .* it is a fake tensor"):
            call(mode.from_tensor(x), y)
    traced = make_fx(lambda a: called(a, a * 1), tracing_mode="fake")(x)
    torch.testing.assert_close(traced(x), 3 * x)
    assert "torch.ops.silo.axpy_" in traced.code
    meta = x.to("meta")
    assert called(meta, meta.clone()).is_meta
    batch = torch.randn(3, 16)
    torch.testing.assert_close(torch.vmap(lambda a: called(a, a * 1))(batch), 3 * batch)
    with pytest.raises(ArgumentError, match="one example of a batch"):
        torch.vmap(lambda a: with_grid(a, a * 1))(batch)
    with pytest.raises(
        ArgumentError, match=r"tracks gradients inside torch\.func.*silo\.torch_op with out= and backward="
    ):
        torch.func.grad(lambda a: called(a, a * 1).sum())(x)
    with pytest.raises(ArgumentError, match="not laid out by strides"):
        called(x.to_sparse(), y)


def test_an_operator_that_nobody_named_has_one_name_everywhere():
    from silo.integrations.torch.automatic import operator_for

    example = {"x": torch.float32, "y": torch.float32, "n": 16, "alpha": 1.0}
    first = operator_for(axpy.kernel, example)
    assert first is operator_for(axpy.kernel, {**example, "n": 99, "alpha": 3.0})
    assert first is not operator_for(axpy.kernel, {**example, "y": torch.float64})
    again = silo.kernel(axpy.kernel.source.function, space={"BLOCK": [64]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
    assert operator_for(again.kernel, example).name != first.name


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Model().eval().requires_grad_(requires_grad=False)


@pytest.fixture
def x():
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(1))


def test_a_model_runs(model, x):
    torch.testing.assert_close(model(x), model.wanted(x))


def test_a_model_is_copied(model, x):
    twice = copy.deepcopy(model)
    assert twice.activation is model.activation
    assert twice.combine is model.combine
    assert twice.layer is not model.layer
    torch.testing.assert_close(twice(x), model.wanted(x))


def test_a_model_is_pickled_by_reference(model, x):
    data = pickle.dumps(model)
    assert b"torch_operators" in data
    torch.testing.assert_close(pickle.loads(data)(x), model.wanted(x))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    torch.testing.assert_close(torch.load(file, weights_only=False)(x), model.wanted(x))


def test_a_model_is_moved(model, x):
    moved = copy.deepcopy(model).to(torch.float64)
    torch.testing.assert_close(moved(x.double()).float(), model.wanted(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(copy.deepcopy(model).to("cpu").half().float()(x), model.wanted(x), rtol=1e-2, atol=1e-2)
    empty = copy.deepcopy(model).to("meta")
    assert empty.layer.weight.is_meta


def test_a_model_is_compiled(model, x):
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(x), model.wanted(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strict", [False, True])
def test_a_model_is_exported(model, x, strict):
    exported = torch.export.export(model, (x,), strict=strict)
    targets = {str(node.target) for node in exported.graph.nodes}
    assert "samples.mul.default" in targets
    assert any(target.startswith("silo.silu_") for target in targets)
    torch.testing.assert_close(exported.module()(x), model.wanted(x))
    if not strict:
        file = io.BytesIO()
        only_operators = torch.export.export(_Operators(), (x,))
        torch.export.save(only_operators, file)
        file.seek(0)
        torch.testing.assert_close(torch.export.load(file).module()(x), x * x)


class _Operators(torch.nn.Module):
    def forward(self, x):
        return OPERATORS["mul"](x, x, x.numel())


def test_a_model_runs_under_functional_call(model, x):
    weights = {name: value * 2 for name, value in model.named_parameters()}
    other = copy.deepcopy(model)
    other.load_state_dict(weights)
    torch.testing.assert_close(torch.func.functional_call(model, weights, (x,)), other.wanted(x))


# -- the seam ----------------------------------------------------------------------------------------------------------


def test_the_seam_says_what_it_is():
    from silo.integrations.torch.dynamo import state

    assert state().reason == "kernels called without a grid become operators"


@pytest.mark.parametrize("tracer", [None, "other"])
def test_a_torch_that_traces_in_another_way_is_left_alone(monkeypatch, caplog, tracer):
    from silo.integrations.torch import dynamo

    class Other:
        def call_triton_kernel(self, kernel, args):
            pass

    module = type(sys)("tracer")
    if tracer:
        module.TritonHOPifier = Other
    before = Other.call_triton_kernel
    monkeypatch.setattr(dynamo._seam, "state", dynamo._seam.state)
    with caplog.at_level("WARNING", "silo"):
        dynamo.connect(module)
    assert Other.call_triton_kernel is before
    assert not dynamo.state()
    assert "give kernels a grid, or define operators with silo.torch_op" in caplog.text
