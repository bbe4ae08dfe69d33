"""Operators of torch over kernels that cannot be: a clear error each."""
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

import pytest
import triton
import triton.language as tl

import silo
from silo.errors import ArgumentError, LaunchError, PackageError, SourceError

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch_operators import F32, OPERATORS, add, axpy, flat, samples, silu  # noqa: E402

SAMPLES = samples()


def test_a_name_that_is_taken():
    with pytest.raises(ArgumentError, match=r"samples::mul is defined already, by mul \(.*another name"):
        silo.torch_op(add, "samples::mul", example=(F32, F32, F32, 8), out={"out": "x"})
    with pytest.raises(ArgumentError, match="aten::add is defined already, by torch, or another library"):
        silo.torch_op(add, "aten::add", example=(F32, F32, F32, 8), out={"out": "x"})
    for name in ("add", "a::b::c", "a b::c", ""):
        with pytest.raises(ArgumentError, match="an operator's name is namespace::name"):
            silo.torch_op(add, name, example=(F32, F32, F32, 8))


def test_a_definition_that_is_run_again_replaces_the_first():
    def define():
        return silo.torch_op(silu, "samples::again", example=(F32, F32, 8), out={"out": "x"})

    first, second = define(), define()
    assert first is not second
    assert second.overload(torch.zeros(4), 4).shape == (4,)


@triton.jit
def through_addresses(table, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(at + i, 1.0, mask=i < n)


def test_effects_that_are_unknown():
    kernel = silo.kernel(through_addresses, grid=(1,), space={"BLOCK": [16]})
    with pytest.raises(SourceError, match=r"effects are unknown: say it with mutates=\(\.\.\.\)"):
        silo.torch_op(kernel, "samples::hidden", example=(torch.int64, 8))
    made = silo.torch_op(kernel, "samples::hidden", example=(torch.int64, 8), mutates=("table",))
    assert made.schema == "hidden(Tensor(a0!) table, SymInt n) -> ()"
    with pytest.raises(ArgumentError, match="mutates= names n, and its tensors are table"):
        silo.torch_op(kernel, "samples::hidden2", example=(torch.int64, 8), mutates=("n",))


@silo.kernel(space={"BLOCK": [16]}, grid=(1,), tune="off")
@triton.jit
def either(x, y, n, BACK: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if BACK:
        tl.store(x + i, tl.load(y + i, mask=i < n), mask=i < n)
    else:
        tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


def test_code_that_does_more_than_the_schema_says_is_refused():
    operator = silo.torch_op(either, "samples::either", example=(F32, F32, 8, False))
    x, y = torch.arange(8.0), torch.zeros(8)
    operator(x, y, 8, False)
    assert torch.equal(x, y)
    with pytest.raises(LaunchError, match=r"only reads x, and the code for this call .*writes to it.*mutates="):
        operator(x, y + 1, 8, True)
    assert torch.equal(x, torch.arange(8.0))


def test_outputs_that_the_kernel_reads_need_a_filling():
    count = OPERATORS["count"].kernel
    wrong = {"out": "index"}
    with pytest.raises(ArgumentError, match=r"may read out before it writes.*torch\.zeros_like\(a\.index\)"):
        silo.torch_op(count, "samples::wrong", example=(torch.int64, torch.int32, 8), out=wrong)


def test_outputs_that_make_no_sense():
    def made(out, **more):
        return silo.torch_op(add, "samples::senseless", example=(F32, F32, F32, 8), out=out, **more)

    with pytest.raises(ArgumentError, match="names x, which the kernel does not write to"):
        made({"x": "y"})
    with pytest.raises(ArgumentError, match="names z, and the kernel's tensors are x, y, out"):
        made({"z": "y"})
    with pytest.raises(ArgumentError, match="like 'z', which is not an argument; there are x, y, n"):
        made({"out": "z"})
    with pytest.raises(ArgumentError, match="is an argument's name or a function"):
        made({"out": 3})
    x = torch.zeros(8)
    with pytest.raises(ArgumentError, match="the output out lies in the memory of x"):
        made({"out": lambda a: a.x.view(-1)})(x, x + 1, 8)
    with pytest.raises(ArgumentError, match="a function that returned a int"):
        made({"out": lambda a: 3})(x, x + 1, 8)
    with pytest.raises(AttributeError, match="no argument z; it has x, y, n"):
        made({"out": lambda a: a.z})(x, x + 1, 8)
    with pytest.raises(ArgumentError, match=r"writes to y: name them in out="):
        silo.torch_op(axpy, "samples::senseless", example=(F32, F32, 8, 1.0), backward=lambda ctx: ())
    with pytest.raises(ArgumentError, match="backward=, which is not given"):
        made({"out": "x"}, setup_context=lambda ctx, inputs, output: None)


def test_an_output_whose_shape_depends_on_values():
    operator = silo.torch_op(
        add,
        "samples::unknown_shape",
        example=(F32, F32, F32, 8),
        out={"out": lambda a: a.x.new_empty(int(a.y.sum()))},
    )
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.zeros(8)
        with pytest.raises(
            SourceError, match=r"the shape of the output out depends on the values in a tensor.*argument"
        ):
            operator(x, x, 8)


def test_a_traced_number_where_a_constexpr_is_wanted():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    unknown = ShapeEnv().create_unbacked_symint()
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.zeros(8)
        with pytest.raises(SourceError, match=r"exponent is a constexpr of power .*set exponent in the kernel's space"):
            OPERATORS["power"](x, 8, unknown)


def test_examples_that_do_not_fit():
    def made(**given):
        return silo.torch_op(add, "samples::unfit", **given)

    with pytest.raises(ArgumentError, match=r"nothing says what it is called with.*example=.*add\.cases"):
        made()
    with pytest.raises(ArgumentError, match="the example leaves out out"):
        made(example=(F32, F32))
    with pytest.raises(ArgumentError, match="has 5 arguments, and calls give 4: x, y, out, n"):
        made(example=(F32, F32, F32, 8, 8))
    with pytest.raises(ArgumentError, match="gives BLOCK, which no call does"):
        made(example={"x": F32, "y": F32, "out": F32, "n": 8, "BLOCK": 8})
    with pytest.raises(ArgumentError, match="example= is a tuple"):
        made(example=3)


@flat()
@triton.jit
def with_text(x, n, WORD: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, (1.0 if WORD == "one" else 2.0) + tl.zeros((BLOCK,), tl.float32), mask=i < n)


@flat()
@triton.jit
def of_type(x, n, TYPE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.zeros((BLOCK,), TYPE), mask=i < n)


def test_constexprs_of_other_types():
    operator = silo.torch_op(with_text, "samples::with_text", example=(F32, 8, "one"))
    x = torch.zeros(8)
    operator(x, 8, "two")
    assert x.eq(2).all()
    with pytest.raises(
        ArgumentError, match=r"TYPE is .*which no operator of torch takes: set it in the kernel's space"
    ):
        silo.torch_op(of_type, "samples::of_type", example=(F32, 8, tl.float32))


def test_kernels_that_cannot_be_operators():
    with pytest.raises(ArgumentError, match=r"takes a kernel that silo\.kernel made, and not a JITFunction"):
        silo.torch_op(through_addresses, "samples::plain")
    with pytest.raises(SourceError, match=r"has no declared grid.*give silo\.kernel a grid="):
        silo.torch_op(silo.kernel(through_addresses), "samples::no_grid", example=(torch.int64, 8))


@silo.kernel(space={"BLOCK": [16]}, grid=(1,), tune="off")
@triton.jit
def with_case(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@with_case.cases(n=[8, 16])
def _with_case(n, make):
    x, out = make.integers(n, high=5, dtype="int32"), make.empty(n, dtype="int32")
    return silo.Case(args=(x, out, n), expected={"out": lambda: x.host + 1})


def test_the_first_case_is_the_example():
    operator = silo.torch_op(with_case, "samples::with_case", out={"out": "x"})
    assert operator.schema == "with_case(Tensor x, SymInt n) -> Tensor"
    x = torch.arange(8, dtype=torch.int32)
    assert torch.equal(operator(x, 8), x + 1)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.1.0", "older than 2.8"),
        ("2.11.0", "older than 2.13, 2.14, 2.15"),
        ("2.99.0a1", "newer than 2.13, 2.14, 2.15"),
        ("2.13.0+cpu", "tested"),
    ],
)
def test_versions_of_torch(version, said):
    from silo.launch.torch_versions import judge_version

    assert said in judge_version(version).reason


def test_a_torch_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.1.0")
    with pytest.raises(PackageError, match=r"torch 2\.1\.0 is older than 2\.8.*install torch 2\.15"):
        silo.torch_op(add, "samples::old", example=(F32, F32, F32, 8))
