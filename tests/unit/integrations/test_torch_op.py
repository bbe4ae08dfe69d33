"""``silo.torch_op``: operators of torch over kernels, with schemas from their effects."""
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

import copy
import inspect
import pickle

import pytest
import triton
import triton.language as tl

import silo
from silo.errors import ArgumentError, UnsupportedError

torch = pytest.importorskip("torch", reason="torch is not installed")

from repetitions import one_in  # noqa: E402
from torch_operators import F32, OPERATORS, add, samples  # noqa: E402

SAMPLES = samples()


def fresh(name):
    return tuple(one.clone() if isinstance(one, torch.Tensor) else one for one in SAMPLES[name].args)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_compute_what_torch_does(name):
    operator, sample = OPERATORS[name], SAMPLES[name]
    wanted = sample.reference(*fresh(name))
    tolerance = {"rtol": 2e-2, "atol": 1e-2} if name == "rms_norm" else {"rtol": 1e-5, "atol": 1e-5}
    for _ in range(2):  # the first goes through torch's dispatcher, the next straight to the launcher
        args = fresh(name)
        made = operator(*args)
        if sample.written:
            assert made is None
            made = args[sample.written[0]]
        torch.testing.assert_close(made, wanted, **tolerance)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # of the check in torch 2.15
@pytest.mark.parametrize("name", one_in(3, OPERATORS))
def test_torchs_own_checks_pass(name):
    operator = OPERATORS[name]
    args = fresh(name)
    if name in ("add", "mul", "silu"):
        args = tuple(one.requires_grad_() if isinstance(one, torch.Tensor) else one for one in args)
    found = torch.library.opcheck(operator.overload, args)
    assert set(found.values()) == {"SUCCESS"}, found


def test_schemas_come_from_effects_and_the_example():
    schemas = {name: operator.schema for name, operator in OPERATORS.items()}
    assert schemas["axpy"] == "axpy(Tensor x, Tensor(a0!) y, SymInt n, float alpha) -> ()"
    assert schemas["add"] == "add(Tensor x, Tensor y, SymInt n) -> Tensor"
    assert schemas["scatter_add_"].startswith("scatter_add_(Tensor(a0!) x, Tensor index")
    assert "Tensor? bias" in schemas["layer_norm"]
    assert schemas["row_range"].endswith("-> (Tensor, Tensor)")
    assert "bool negate" in schemas["clamp"]
    assert schemas["power"] == "power(Tensor x, SymInt n, SymInt exponent=2, float scale=1.0) -> Tensor"
    assert OPERATORS["axpy"].mutates == ("y",)
    assert OPERATORS["row_range"].outputs == ("low", "high")
    assert repr(OPERATORS["add"]) == "<operator samples::add(Tensor x, Tensor y, SymInt n) -> Tensor>"


def test_defaults_and_names():
    x, n, _ = fresh("power")
    power = OPERATORS["power"]
    torch.testing.assert_close(power(x, n), x**2)
    torch.testing.assert_close(power(x, n=n, scale=2.0), 2 * x**2)
    torch.testing.assert_close(power(x, n, 3, 0.5), x**3 / 2)
    with pytest.raises(RuntimeError, match="missing value for argument 'n'"):
        power(x)


def test_an_integer_for_a_float_is_a_float():
    """As torch converts it: the same on the first call, through torch, and on the next ones."""
    made = []
    for _ in range(3):
        x, y, n, _ = fresh("axpy")
        OPERATORS["axpy"](x, y, n, 1)
        made.append(y - fresh("axpy")[1] - x)
    assert all(one.abs().max() < 1e-6 for one in made)


@silo.kernel(space={"BLOCK": [16]}, grid=(1,), tune="off")
@triton.jit
def by_value(x, out, n, whole, real, flag, BLOCK: tl.constexpr):
    """The result computed with each number shows which type the kernel received."""
    i = tl.arange(0, BLOCK)
    made = (whole + whole + whole) + real * real + (flag + flag) * 0.25
    tl.store(out + i, tl.load(x + i, mask=i < n) * made, mask=i < n)


def test_numbers_are_what_the_schema_says_whatever_class_a_call_gives():
    """An integer's square leaves 32 bits, a bool's sum one bit: the first call and all later ones compute the same."""
    operator = silo.torch_op(by_value, "samples::by_value", example=(F32, F32, 8, 3, 1.0, True), out={"out": "x"})
    x = torch.ones(8)
    for whole, real, flag in ((True, 70000, 1), (2, 0.5, True), (True, 1, 2), (3, True, False), (1 << 40, 2, 0)):
        wanted = torch.ops.samples.by_value(x, 8, whole, real, flag)
        for _ in range(3):
            assert torch.equal(operator(x, 8, whole, real, flag), wanted)
    assert operator(x, 8, True, 70000, False)[0] == pytest.approx(3 + 4.9e9, rel=1e-6)


# -- autograd ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "mul", "silu"])
def test_gradients(name):
    args = [one.double() if isinstance(one, torch.Tensor) else one for one in fresh(name)]
    small = [one[:8].clone().requires_grad_() if isinstance(one, torch.Tensor) else 8 for one in args]
    tensors = [one for one in small if isinstance(one, torch.Tensor)]
    operator = OPERATORS[name]
    if name == "silu":  # the kernel computes in fp32
        made = operator(*(one.float() if isinstance(one, torch.Tensor) else one for one in small))
        wanted = torch.nn.functional.silu(tensors[0])
        torch.testing.assert_close(
            torch.autograd.grad(made.sum(), tensors), torch.autograd.grad(wanted.sum(), tensors), rtol=1e-5, atol=1e-5
        )
    else:
        assert torch.autograd.gradcheck(lambda *given: operator(*given, 8), tensors)


def test_gradients_of_transforms():
    x, y, n = fresh("mul")
    mul = OPERATORS["mul"]
    torch.testing.assert_close(torch.func.grad(lambda a: mul(a, y, n).sum())(x), y)
    per_example = torch.vmap(torch.func.grad(lambda a: mul(a, a, 4).sum()))(torch.ones(3, 4))
    torch.testing.assert_close(per_example, torch.full((3, 4), 2.0))
    torch.testing.assert_close(torch.func.jacrev(lambda a: mul(a, y[:4], 4))(x[:4]), torch.diag(y[:4]))
    torch.testing.assert_close(torch.func.functionalize(lambda a: mul(a, y, n))(x), x * y)
    with pytest.raises(UnsupportedError, match=r"call the object that silo\.torch_op gave"):
        torch.func.grad(lambda a: torch.ops.samples.mul(a, y, n).sum())(x)


def test_an_operator_without_a_backward_says_so_when_it_is_asked():
    x, m, n, block = fresh("softmax")
    made = OPERATORS["softmax"](x.requires_grad_(), m, n, block)
    with pytest.raises(UnsupportedError, match=r"samples::softmax has no backward: give silo\.torch_op one"):
        made.sum().backward()


def test_writes_are_counted_and_refused_where_a_gradient_is_wanted():
    x, y, n, alpha = fresh("axpy")
    operator = OPERATORS["axpy"]
    for call in (operator, operator.overload):
        before = y._version
        call(x, y, n, alpha)
        assert y._version == before + 1
    saved = torch.ones(300, requires_grad=True) * y  # keeps y for its backward
    operator(x, y, n, alpha)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()
    leaf = y.clone().requires_grad_()
    for call in (operator, operator.overload):
        with pytest.raises(ArgumentError, match="writes to y, of which a gradient is wanted"):
            call(x, leaf, n, alpha)
    with torch.no_grad():
        operator(x, leaf, n, alpha)
    torch.testing.assert_close(leaf.detach(), y + alpha * x)
    with pytest.raises(ArgumentError, match="writes to y, of which a gradient is wanted"):
        torch.func.grad(lambda a: operator(x, a * 1, n, alpha))(y)


def test_tensors_whose_memory_has_the_other_sign():
    """The imaginary part of a conjugate has the negative bit set: torch resolves it before a kernel reads memory."""
    assert torch.complex(torch.ones(2), torch.ones(2)).conj().imag.is_neg()
    x, y, n = fresh("add")
    for _ in range(3):
        minus = torch._neg_view(y)
        for call in (OPERATORS["add"], OPERATORS["add"].overload):
            torch.testing.assert_close(call(minus, torch.zeros(n), n), -y)
        OPERATORS["add"](x, y, n)
        memory = y.clone()
        OPERATORS["axpy"](torch._neg_view(x), memory, n, 2.0)
        torch.testing.assert_close(memory, y - 2 * x)
        with pytest.raises(ArgumentError, match=r"writes to y, a view whose memory .* pass tensor\.resolve_neg\(\)"):
            OPERATORS["axpy"](x, torch._neg_view(memory), n, 2.0)


def test_inference_mode():
    with torch.inference_mode():
        x, y, n, alpha = fresh("axpy")
        for _ in range(3):
            OPERATORS["axpy"](x, y, n, alpha)
    torch.testing.assert_close(y, fresh("axpy")[1] + 3 * alpha * x)


def test_vmap_runs_each_example():
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    torch.testing.assert_close(torch.vmap(lambda a, b: OPERATORS["add"](a, b, 8))(x, y), x + y)
    low, high = torch.vmap(lambda a: OPERATORS["row_range"](a, 2, 8, 8))(torch.stack([x[:2], y[:2]]))
    torch.testing.assert_close(high, torch.stack([x[:2].amax(1), y[:2].amax(1)]))
    assert low.shape == (2, 2)

    def written(a, b):
        OPERATORS["axpy"](a, b, 8, 2.0)
        return b

    torch.testing.assert_close(torch.vmap(written)(x, y.clone()), y + 2 * x)
    with pytest.raises(ArgumentError, match="one tensor for the whole batch"):
        torch.vmap(lambda a: OPERATORS["axpy"](a, y, 8, 2.0), out_dims=None)(x)


@silo.kernel(grid=lambda a: (a.m,), tune="off")
@triton.jit
def scale_rows(x, out, m, n, x_stride, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * x_stride + i, mask=i < n)
    tl.store(out + tl.program_id(0) * n + i, 2 * v, mask=i < n)


@silo.kernel(grid=lambda a: (a.m,), tune="off")
@triton.jit
def add_rows_(x, y, m, n, step, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n)
    own = y + tl.program_id(0) * step + i
    tl.store(own, tl.load(own, mask=i < n) + v, mask=i < n)


def test_vmap_gives_examples_in_a_layout_of_their_own():
    """A kernel without strides assumes contiguous rows; the view of a batch along another axis is not contiguous."""
    x, y = torch.randn(8, 3), torch.randn(8, 3)
    add_op = OPERATORS["add"]
    torch.testing.assert_close(torch.vmap(lambda a, b: add_op(a, b, 8), in_dims=1, out_dims=1)(x, y), x + y)
    both = torch.vmap(lambda a, b: add_op(a, b, 8), in_dims=(1, 0), out_dims=1)(x, y.T.contiguous())
    torch.testing.assert_close(both, x + y)
    shared = torch.randn(2, 8)[0]
    torch.testing.assert_close(
        torch.vmap(lambda a: add_op(a, shared, 8), in_dims=1, out_dims=1)(x), x + shared[:, None]
    )
    cube = torch.randn(4, 8, 3)
    twice = torch.vmap(torch.vmap(lambda a, b: add_op(a, b, 8), in_dims=1), in_dims=0)(cube, cube)
    torch.testing.assert_close(twice, 2 * cube.transpose(1, 2))
    wide = torch.randn(4, 6, 5)[:, :, ::2]  # examples with gaps between their elements
    torch.testing.assert_close(torch.vmap(lambda a: OPERATORS["silu"](a, 18))(wide), torch.nn.functional.silu(wide))

    def written(a, b):
        OPERATORS["axpy"](a, b, 8, 2.0)

    target = y.clone()
    torch.vmap(written, in_dims=1, out_dims=None)(x, target)
    torch.testing.assert_close(target, y + 2 * x)


def test_vmap_gives_views_to_kernels_that_take_strides():
    """Strides are parameters by name, or by ``strided=``; a copy would not have the strides that the call passes."""
    x = torch.randn(4, 3, 8)
    op = silo.torch_op(scale_rows, "batches::scale_rows", example=(F32, F32, 4, 8, 8), out={"out": lambda a: a.x * 0})
    assert op.strided == {"x"}
    found = torch.vmap(lambda a: op(a, 4, 8, a.stride(0)), in_dims=1, out_dims=1)(x)
    torch.testing.assert_close(found, 2 * x)
    named = silo.torch_op(add_rows_, "batches::add_rows_", example=(F32, F32, 4, 8, 8), strided=("y",))
    target = torch.zeros(4, 3, 8)
    torch.vmap(lambda a, b: named(a, b, 4, 8, b.stride(0)), in_dims=1, out_dims=None)(x, target)
    torch.testing.assert_close(target, x)
    assert silo.torch_op(add_rows_, "batches::add_rows2_", example=(F32, F32, 4, 8, 8)).strided == frozenset()
    for odd in (("n",), ("out",), "y"):
        with pytest.raises(ArgumentError, match="strided= names tensors among the arguments, which are x, y"):
            silo.torch_op(add_rows_, "batches::odd", example=(F32, F32, 4, 8, 8), strided=odd)


@pytest.mark.parametrize("shim", [True, False])
def test_a_profiler_sees_operators(shim):
    """Also calls that skip the dispatcher otherwise; by a function of torch's library, or by its Python module."""
    from silo.launch import native

    operator = OPERATORS["add"]
    args = fresh("add")
    operator(*args)
    try:
        if not shim:
            native.torch_close()
        operator(*args)
        assert operator.is_quiet(args)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            assert not operator.is_quiet(args)
            operator(*args)
            torch.ops.samples.add(*args)
        assert operator.is_quiet(args)
    finally:
        assert native.connect_torch()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["samples::add"] == 2


def test_calls_through_torchs_namespace_are_launched_in_c(monkeypatch):
    """The dispatcher is all that they add, once a call taught the classes of its arguments."""
    for name, written in (("add", False), ("axpy", True)):
        operator, args = OPERATORS[name], fresh(name)
        wanted = SAMPLES[name].reference(*fresh(name))
        operator(*args)
        ran = []
        monkeypatch.setattr(operator._outputs, "make", lambda values, ran=ran: ran.append(values))
        monkeypatch.setattr(operator, "_start", lambda values, ran=ran: ran.append(values))
        args = fresh(name)
        version = args[1]._version
        made = getattr(torch.ops.samples, name)(*args)
        torch.testing.assert_close(args[1] if written else made, wanted)
        assert not ran
        assert args[1]._version == version + written


def test_modes_of_torch_see_the_operator():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x, y, n = fresh("add")
    OPERATORS["add"](x, y, n)
    with Watch():
        OPERATORS["add"](x, y, n)
    assert OPERATORS["add"].overload in seen


def test_copies_and_pickles():
    operator = OPERATORS["add"]
    assert copy.deepcopy(operator) is operator
    assert copy.copy(operator) is operator
    assert pickle.loads(pickle.dumps(operator)) is operator
    assert operator.module == "torch_operators"


# -- calls that skip torch's dispatcher --------------------------------------------------------------------------------


class Counted:
    """Counts the calls of an operator that torch's dispatcher gets."""

    def __init__(self, operator, monkeypatch):
        self.count, taken = 0, operator.overload

        def overload(*args, **kwargs):
            self.count += 1
            return taken(*args, **kwargs)

        monkeypatch.setattr(operator, "overload", overload)


@pytest.mark.parametrize("name", ["add", "axpy", "layer_norm", "row_range"])
def test_plain_calls_skip_the_dispatcher(name, monkeypatch):
    operator = OPERATORS[name]
    operator(*fresh(name))  # classes that torch has accepted once
    counted = Counted(operator, monkeypatch)
    for _ in range(3):
        operator(*fresh(name))
    assert counted.count == 0
    with torch.no_grad():
        operator(*fresh(name))
    operator(*(torch.nn.Parameter(one, requires_grad=False) if isinstance(one, torch.Tensor) else one
               for one in fresh(name)))  # fmt: skip
    assert counted.count == 1  # a class that torch did not take in these places before


def test_calls_that_the_dispatcher_has_to_see(monkeypatch):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Function(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class Own(torch.Tensor):
        pass

    operator = OPERATORS["add"]
    x, y, n = fresh("add")
    wanted = x + y
    operator(x, y, n)
    counted = Counted(operator, monkeypatch)

    def seen(call):
        before = counted.count
        torch.testing.assert_close(torch.Tensor(call().detach()), wanted)
        return counted.count - before

    assert seen(lambda: operator(x, y, n)) == 0
    assert seen(lambda: operator(x, y, n=n)) == 1
    assert seen(lambda: operator(x.clone().requires_grad_(), y, n)) == 1
    assert seen(lambda: operator(x.as_subclass(Own), y, n)) == 1
    assert seen(lambda: operator(torch._neg_view(-x), y, n)) == 1
    for mode in (Function, Dispatch):
        with mode():
            assert seen(lambda: operator(x, y, n)) == 1
    with torch.no_grad():
        assert seen(lambda: operator(x.clone().requires_grad_(), y, n)) == 0
    assert seen(lambda: torch.vmap(lambda a: operator(a, y, n))(x[None])[0]) >= 1
    assert seen(lambda: operator(x, y, n)) == 0


def test_views_of_the_other_sign_where_silo_does_not_read_torchs_memory(monkeypatch):
    """Torch itself is asked then."""
    from silo.launch import native

    operator = OPERATORS["add"]
    x, y, n = fresh("add")
    operator(x, y, n)
    counted = Counted(operator, monkeypatch)
    places, others = [(x, 0), (y, 1)], 1 << 60  # no tensor has these keys
    try:
        assert native.torch_probe_keys(tuple(places), others) == 0
        torch.testing.assert_close(operator(x, y, n), x + y)
        assert counted.count == 0
        torch.testing.assert_close(operator(torch._neg_view(x), y, n), y - x)
        assert counted.count == 1
    finally:
        assert native.connect_torch()
    with pytest.raises(ArgumentError, match="holds its values with the other sign"):
        add(torch._neg_view(x), y, torch.empty_like(x), n)


def test_outputs_between_the_arguments_and_kernels_that_write_in_another_order():
    @silo.kernel(space={"BLOCK": [16]}, grid=(1,), tune="off")
    @triton.jit
    def first(out, x, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

    operator = silo.torch_op(first, "samples::first_out", example=(F32, F32, 8), out={"out": "x"})
    for _ in range(3):
        torch.testing.assert_close(operator(torch.zeros(8), 8), torch.ones(8))
    by_name = silo.torch_op(first, "samples::by_name", example={"n": 8, "x": F32, "out": F32})
    out = torch.zeros(8)
    for _ in range(3):
        assert by_name(*({"n": 8, "x": out, "out": out}[one.name] for one in by_name.arguments)) is None
    torch.testing.assert_close(out, torch.full((8,), 3.0))


def test_a_call_that_fails_leaves_nothing_behind():
    import sys

    x, y, n = fresh("add")
    operator = OPERATORS["add"]
    operator(x, y, n)
    before = sys.getrefcount(x), sys.getrefcount(y)
    for _ in range(5):
        with pytest.raises(ArgumentError, match=r"y.* is a meta tensor"):
            operator(x, y.to("meta"), n)
        operator(x, y, n)
    assert (sys.getrefcount(x), sys.getrefcount(y)) == before


def test_meta_tensors_beside_tensors_with_memory():
    """Nothing would run, so that results would hold whatever lay in their memory."""
    x, y, n = fresh("add")
    operator = OPERATORS["add"]
    assert operator(x.to("meta"), y.to("meta"), n).is_meta
    for args in ((x.to("meta"), y), (x, y.to("meta"))):
        for call in (operator, operator.overload, lambda *args: add(*args[:2], torch.empty_like(x), n)):
            with pytest.raises(ArgumentError, match="is a meta tensor, which has a shape and no memory"):
                call(*args, n)


def test_none_in_the_place_of_a_tensor():
    x, y, n = fresh("add")
    for call in (OPERATORS["add"], OPERATORS["add"].overload):
        for _ in range(2):
            with pytest.raises(ArgumentError, match="samples::add takes a tensor as x, and the call gives None"):
                call(None, y, n)
    x, y, n, alpha = fresh("axpy")
    with pytest.raises(ArgumentError, match="samples::axpy takes a tensor as y, and the call gives None"):
        OPERATORS["axpy"](x, None, n, alpha)


def test_a_child_made_by_fork_calls_operators():
    import os

    x, y, n = fresh("add")
    wanted = OPERATORS["add"](x, y, n)
    child = os.fork()
    if child == 0:
        same = torch.equal(OPERATORS["add"](x, y, n), wanted)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_that_call_one_operator():
    import threading

    operator = OPERATORS["add"]
    failed = []

    def work(number):
        x = torch.full((64,), float(number))
        for turn in range(300):
            made = operator(x, x if turn % 3 else torch.nn.Parameter(x, requires_grad=turn % 2 == 0), 64)
            if not made.eq(2 * number).all():
                failed.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed


def test_the_public_signature():
    names = list(inspect.signature(silo.torch_op).parameters)
    assert names == ["kernel", "name", "out", "backward", "setup_context", "example", "mutates", "strided"]
