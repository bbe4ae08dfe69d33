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

from inductor_cpu import finds_triton  # noqa: E402
from silo.kinds.triton.programs.backend.named_cpu.compiler import NamedCpuBackend  # noqa: E402
from silo.kinds.triton.programs.backend.named_cpu.driver import NamedCpuDriver  # noqa: E402
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
        if not finds_triton():
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
    if BACK == 1:
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


@triton.jit
def both(first, second, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(first + i, 1.0)
    tl.debug_barrier()
    tl.store(second + i, tl.load(second + i) + 2.0)


@triton.jit
def through(written, read, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(written + i, 7.0)
    tl.debug_barrier()
    tl.store(out + i, tl.load(read + i))


@triton.jit
def fill_if(x, fill, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, 7.0, mask=(i < n) & (fill != 0))


@triton.jit
def widened(x, number, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, number.to(KIND).to(tl.float64) + i * 0)


kernels = {one.fn.__name__: silo.kernel(one, tune="off") for one in (both, through, fill_if, widened)}
configured = silo.kernel(plain_add, space={"BLOCK": [128, 256], "num_warps": [4, 8]}, tune="off")


def compare(function, *args, backend="aot_eager", dynamic=None):
    """Results and arguments of a program, compiled and not."""
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic)
    own, others = ([one.clone() if isinstance(one, torch.Tensor) else one for one in args] for _ in range(2))
    torch.testing.assert_close(compiled(*own), function(*others), rtol=0, atol=0)
    torch.testing.assert_close(own, others, rtol=0, atol=0)
    return compiled


def test_arguments_in_common_memory():
    """One tensor twice, views that overlap, an input; written twice, or read after it was written."""

    def written_twice(x):
        y, z = x * 1, x * 1
        kernels["both"][(1,)](y, y, BLOCK=16)
        kernels["both"][(1,)](z[:16], z[8:24], BLOCK=16)
        kernels["both"][(1,)](x, x.view(4, 8)[2:].flatten(), BLOCK=16)
        return y, z, x * 1

    def read_too(x):
        y, out = x * 1, torch.empty_like(x)
        kernels["through"][(1,)](y, y, out, BLOCK=16)
        kernels["through"][(1,)](x[:16], x[8:24], out[16:], BLOCK=16)
        return y, out

    compare(written_twice, torch.zeros(32))
    compare(read_too, torch.arange(32.0))


def test_rows_of_one_buffer_that_some_launches_write():
    """What a launch does not write keeps its values."""

    def rows(base):
        buffer = base * 2
        for number in range(4):
            kernels["fill_if"][(1,)](buffer[number], number % 2, 512, BLOCK=512)
        return buffer

    compare(rows, torch.arange(2048.0).reshape(4, 512), backend="inductor")


def test_numbers_are_what_they_are_in_a_plain_call():
    """A Python float is fp32, written in the program or an argument of it; constexprs keep their types."""

    def literal(x):
        kernels["widened"][(1,)](x, 0.1, tl.float64, BLOCK=8)
        return x * 1

    def given(x, number):
        kernels["widened"][1,](x, number, KIND=tl.float16, BLOCK=8)
        return x * 1

    compare(literal, torch.zeros(8, dtype=torch.float64))
    compare(given, torch.zeros(8, dtype=torch.float64), 0.1)


def test_constexprs_that_compare_equal_are_different_operators():
    def program(x):
        for value in (0, False, 0.0):
            stated[(1,)](x, x * 2, 8, value, BLOCK=1024)
        return x

    seen = []

    def backend(graph, _example):
        seen.extend(str(node.target) for node in graph.graph.nodes if "stated" in str(node.target))
        return graph.forward

    torch.compile(program, fullgraph=True, backend=backend)(torch.arange(8.0))
    assert len(set(seen)) == 3


def test_grids_of_every_form():
    """A tuple, an integer, a list, functions of the config and of captured sizes, symbolic sizes; options of a call."""
    sizes = []

    def backend(graph, _example):
        sizes.extend(node.kwargs["grid"] for node in graph.graph.nodes if "grid" in node.kwargs)
        return graph.forward

    def program(x, y):
        n = x.numel()
        made = [torch.empty_like(x) for _ in range(6)]
        configured[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, made[0], n)
        configured[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]), 1)](made[0], y, out=made[1], n=n)
        configured[(triton.cdiv(n, 128),)](made[1], y, made[2], n)
        configured[triton.cdiv(n, 64)](made[2], y, made[3], n, BLOCK=64, num_warps=8)
        configured[[64, 1, 1]](made[3], y, made[4], n, BLOCK=128)
        configured.run(made[4], y, made[5], n, grid=lambda meta: (meta["BLOCK"] // 2,), BLOCK=128)
        return made[5]

    compiled = torch.compile(program, fullgraph=True, backend=backend, dynamic=True)
    for size in (1000, 777):
        x, y = torch.randn(size), torch.randn(size)
        torch.testing.assert_close(compiled(x, y), x + 6 * y)
    assert [len(one) for one in sizes] == [2, 4, 1, 1, 3, 1]  # traced once, with symbols, for each config that differs


@silo.kernel(grid=lambda a: (a.programs,), tune="off")
@triton.jit
def backwards(source, target, n, programs, BLOCK: tl.constexpr = 64):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + n - 1 - i, tl.load(source + i, mask=i < n), mask=i < n)


@silo.kernel(grid=lambda a: (a.programs,), tune="off")
@triton.jit
def exchanged(first, second, n, programs, BLOCK: tl.constexpr = 64):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    one, two = tl.load(first + i, mask=i < n), tl.load(second + n - 1 - i, mask=i < n)
    tl.store(first + i, two + 1, mask=i < n)
    tl.store(second + n - 1 - i, one, mask=i < n)


@torch.library.custom_op("samples::backwards", mutates_args={"target"})
def custom_backwards(source: torch.Tensor, target: torch.Tensor, n: int, programs: int) -> None:
    backwards(source, target, n, programs)


@custom_backwards.register_fake
def _(source, target, n, programs):
    return None


backwards_op = silo.torch_op(backwards, "samples::backwards_op", example=(torch.float32, torch.float32, 16, 1))


def test_a_copy_beside_a_written_tensor_is_kept():
    """torch takes out copies that nothing after the kernel reads; the kernel itself reads them."""

    def program(x, y):
        for call in (
            lambda a, b, n: backwards(a, b, n, 16),
            lambda a, b, n: backwards[(16,)](a, b, n, 16),
            lambda a, b, n: backwards_op(a, b, n, 16),
            lambda a, b, n: custom_backwards(a, b, n, 16),
            lambda a, b, n: exchanged[(16,)](a, b, n, 16),
        ):
            saved = x.clone()
            call(saved, x, 1000)
            saved = y + torch.zeros_like(y)  # a copy by another name
            call(saved[100:], y[100:], 900)
            made = (x * 3).clone()
            call(made, x, 1000)
            y = y + made
        return x, y

    compare(program, torch.arange(1000.0), torch.arange(1000.0) * 2, backend="inductor")


def test_a_value_that_is_used_after_the_kernel_is_not_computed_again():
    """From memory that the kernel overwrote: torch computes it once for the kernel, and once more afterwards."""

    def program(x, y):
        made = x * 3
        backwards(made, x, 1000, 16)
        own = y + made
        made = own * 2
        backwards[(16,)](made, own, 1000, 16)
        return own + made

    compare(program, torch.arange(1000.0), torch.arange(1000.0) * 2, backend="inductor")


def test_a_copy_that_the_program_returns_is_kept():
    """Written and returned, beside the input that it was copied from."""

    def program(x):
        saved = x.clone()
        exchanged(saved, x, 1000, 16)
        return saved

    compare(program, torch.arange(1000.0), backend="inductor")


def test_arguments_that_the_program_itself_puts_in_common_memory_are_written_in_place():
    """No copy is made of these: the operator of one written tensor reads what it writes, as in the plain call."""
    from torch._inductor.utils import run_and_get_code

    def program(x):
        y = x * 2
        backwards_op(y, y, 1000, 16)
        return y

    torch._dynamo.reset()
    _, (code,) = run_and_get_code(torch.compile(program, fullgraph=True), torch.zeros(1000))
    assert code.count("empty_strided_cpu(") == 1  # y, and no copy of it


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
    torch.testing.assert_close(torch.vmap(lambda a: with_grid(a, a * 1))(batch), 3 * batch)
    traced = make_fx(lambda a: with_grid(a, a * 1), tracing_mode="fake")(x)
    torch.testing.assert_close(traced(x), 3 * x)
    assert "torch.ops.silo.axpy_" in traced.code
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


def test_an_exported_call_with_a_grid_is_torchs_own_operator():
    """A package needs the kernel. What that operator computes wrong is refused."""

    class Plain(torch.nn.Module):
        def forward(self, x, y):
            out = torch.empty_like(x)
            configured[(8,)](x, y, out, x.numel(), BLOCK=128)
            return out

    class Shared(torch.nn.Module):
        def forward(self, x):
            y = x * 1
            kernels["both"][(1,)](y, y, BLOCK=16)
            return y

    x, y = torch.randn(1000), torch.randn(1000)
    for strict in (True, False):
        exported = torch.export.export(Plain(), (x, y), strict=strict)
        assert any("triton_kernel_wrapper" in str(node.target) for node in exported.graph.nodes)
        with pytest.raises(Exception, match="writes to first and second, which lie in common memory"):
            torch.export.export(Shared(), (torch.zeros(16),), strict=strict)


def test_a_model_runs_under_functional_call(model, x):
    weights = {name: value * 2 for name, value in model.named_parameters()}
    other = copy.deepcopy(model)
    other.load_state_dict(weights)
    torch.testing.assert_close(torch.func.functional_call(model, weights, (x,)), other.wanted(x))


# -- the seam ----------------------------------------------------------------------------------------------------------


def test_the_seam_says_what_it_is():
    from silo.integrations.torch.dynamo import state

    assert state().reason == "kernels become operators"


def test_keys_of_compiled_graphs_have_the_schemas_of_their_operators():
    """The same graph is another program once its operator writes to another argument."""
    from torch._inductor.codecache import FxGraphHashDetails

    from silo.integrations.torch import graph_keys, kept_copies

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(backwards_op.overload, (x, x, 5, 1))
    graph.call_function(torch.ops.higher_order.auto_functionalized, (torch.ops.samples.backwards.default,))
    graph.call_function(torch.ops.aten.sin.default, (x,))
    graph.output(x)
    details = FxGraphHashDetails(torch.fx.GraphModule(torch.nn.Module(), graph), [], {}, [])
    _, *schemas = details.silo
    assert [one.partition("(")[0] for one in schemas] == ["samples::backwards", "samples::backwards_op"]
    assert "Tensor(a0!) target" in schemas[1]
    assert FxGraphHashDetails(None, [], {}, []).silo == details.silo[:1]
    assert kept_copies.state()
    assert graph_keys.state()


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
    monkeypatch.setattr(dynamo._hook_point, "state", dynamo._hook_point.state)
    with caplog.at_level("WARNING", "silo"):
        dynamo.connect(module)
    assert Other.call_triton_kernel is before
    assert not dynamo.state()
    assert "define operators with silo.torch_op" in caplog.text
