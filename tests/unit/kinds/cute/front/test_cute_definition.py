"""``silo.cute``: what a kernel's parameters are, and what is refused when it is declared. Needs no DSL."""
# pyright: reportFunctionMemberAccess=false, reportAttributeAccessIssue=false, reportCallIssue=false

import subprocess
import sys

import cute_functions as functions
import pytest

import silo
from silo.core.extents import ExtentKind, HeldExtents
from silo.core.signature import Effect, NoDefault, ParameterKind
from silo.errors import CompileError, SourceError, SpaceError, TraceError
from silo.kinds.cute.front.cute_source import Host, WrittenWrapper, cute
from silo.sources.kinds import kind_named, kind_reading


def source(function, **said):
    return cute(function, **said).source


def shown(one):
    kinds = {ParameterKind.POINTER: "*", ParameterKind.CONSTEXPR: "constexpr", ParameterKind.ANY: "any"}
    return kinds.get(one.kind, "") + (one.dtype.short if one.dtype else "")


def described(made):
    return {one.name: shown(one) for one in made.signature.parameters}


def test_annotations_say_what_parameters_are():
    assert described(source(functions.add, block=128)) == {"x": "*", "out": "*", "n": "i32", "BLOCK": "constexpr"}
    made = source(functions.scaled, block=128)
    assert described(made) == {"x": "*", "p": "*", "a": "any", "flag": "i1", "wide": "u8", "MODE": "constexpr"}
    assert [one.name for one in made.passed if one.pointer] == ["p"]
    assert [one.name for one in made.passed if one.keyword] == ["MODE"]
    assert [one.name for one in made.passed if one.python] == ["flag"]
    assert made.extents == HeldExtents.of({"x": "layout", "a": "layout"})  # of a pointer no layout is known


def test_the_signature_says_the_rest():
    made = source(functions.add, block=128, signature="x: in, out: out *fp16")
    assert described(made) == {"x": "*", "out": "*fp16", "n": "i32", "BLOCK": "constexpr"}
    assert [made.signature[name].effect for name in ("x", "out")] == [Effect.READ, Effect.WRITE]
    made = source(functions.scaled, block=128, signature={"a": "i64", "MODE": 3})
    assert made.signature["a"].dtype is not None
    assert made.signature["a"].dtype.bits == 64
    assert made.signature["MODE"].default == 3
    made = source(functions.scaled, block=1, signature="a: constexpr")
    assert made.signature["a"].kind is ParameterKind.CONSTEXPR


def test_defaults_are_kept():
    made = source(functions.add, block=128)
    assert made.signature["BLOCK"].default == 128
    assert isinstance(made.signature["x"].default, NoDefault)


def test_a_host_function_has_a_stream_that_nobody_passes():
    made = source(functions.on_host)
    assert (made.written, made.stream, made.host) == (WrittenWrapper.HOST, "stream", Host.AUTO)
    assert described(made) == {"x": "*", "n": "i64"}


def test_the_parameters_of_a_class_are_constants():
    made = source(functions.Product)
    assert (made.written, made.init_names) == (WrittenWrapper.CLASS, ("tile", "stages"))
    assert described(made) == {"x": "*", "out": "*", "tile": "constexpr", "stages": "constexpr"}
    assert made.signature["stages"].default == 2
    assert source(functions.Product(64)).signature.names == ("x", "out")


def test_launch_options_are_numbers_names_and_expressions():
    made = source(functions.add, block=("THREADS", 2), cluster=lambda c: (c.CLUSTER, 1, 1), smem="SMEM",
                  space=[{"THREADS": 64, "CLUSTER": 2, "SMEM": 1024}])  # fmt: skip
    assert made.signature.names == ("x", "out", "n", "BLOCK", "THREADS", "CLUSTER", "SMEM")
    values = made.options.values("add", {"THREADS": 64, "CLUSTER": 2, "SMEM": 1024})
    assert (values.block, values.cluster, values.smem) == ((64, 2, 1), (2, 1, 1), 1024)
    made = source(functions.add, block=lambda c: c.BLOCK // 4)
    assert made.options.values("add", {"BLOCK": 128}).block == (32, 1, 1)
    assert source(functions.add, block=96).options.values("add", {}).block == (96, 1, 1)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("THREADS", "THREADS"),
        (2048, r"block is \(2048, 1, 1\); a block has 1 to 1024 threads"),
        (lambda c: c.BLOCK - 128, r"block is \(0, 1, 1\)"),
    ],
)
def test_a_launch_option_that_no_launch_has_costs_its_config(block, message):
    with pytest.raises(CompileError, match=message):
        source(functions.add, block=block).options.values("add", {"BLOCK": 128})


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({}, "how many threads has a block"),
        ({"block": 128, "signature": "z: in"}, "the signature names z; the function has x, out, n, BLOCK"),
        ({"block": 128, "signature": "n: i64"}, "n is int64 in the signature and int32 in the function"),
        ({"block": 128, "signature": "BLOCK: i32"}, "a value of each call, and the function declares it Constexpr"),
        ({"block": 128, "signature": "n: in"}, "in, out and inout are for arrays"),
        ({"block": 128, "signature": "x: fp32"}, r"write \*fp32"),
        ({"block": 128, "signature": "x: constexpr"}, "an array cannot be a constexpr"),
        ({"block": 128, "signature": "x: in *fp31"}, "fp31"),
        ({"block": 128, "signature": "x"}, "has no type"),
        ({"block": "n"}, "a launch option reads n, which each call passes"),
        ({"block": (1, 2, 3, 4)}, "block="),
        ({"block": 128, "smem": (1, 2)}, "smem is one number"),
        ({"block": 128, "host": "theirs"}, "host='theirs'; it is 'auto' or 'silo' or 'dsl'"),
        ({"block": 128, "layouts": "free"}, "layouts='free'; it is 'static' or 'dynamic'"),
    ],
)
def test_a_contradiction_is_one_line_with_the_cure(said, message):
    with pytest.raises(SourceError, match=message) as raised:
        source(functions.add, **said)
    assert "\n" not in str(raised.value)


def test_what_a_launch_option_cannot_read():
    with pytest.raises(TraceError, match="NOTHING"):
        source(functions.add, block=lambda c: c.NOTHING)
    with pytest.raises(SpaceError, match=r"add \(.*: .*empty|add"):
        source(functions.add, block=128, space={"BLOCK": []})


def test_parameters_that_no_call_can_pass():
    @functions.kernel
    def opaque(x: "cute.Tensor", mma: "cute.TiledMma"): ...

    @functions.kernel
    def several(*tensors): ...

    @functions.jit
    def named(x, *, TILE): ...

    with pytest.raises(SourceError, match="mma is a TiledMma, which no call passes"):
        source(opaque, block=128)
    with pytest.raises(SourceError, match="name each"):
        source(several, block=128)
    with pytest.raises(SourceError, match="TILE can be passed by keyword only"):
        source(named)


def test_a_kernel_typed_at_a_prompt_is_refused():
    space = {"kernel": functions.kernel}
    exec(compile("@kernel\ndef typed(x): ...", "<stdin>", "exec"), space)
    with pytest.raises(SourceError, match=r"typed has no source \(<stdin>\).*write it to a file") as raised:
        source(space["typed"], block=128)
    assert "\n" not in str(raised.value)


def test_what_is_not_a_kernel_is_refused():
    with pytest.raises(SourceError, match=r"twice is not a kernel of the CuTe DSL: .*@cute.kernel or @cute.jit"):
        cute(functions.twice)
    with pytest.raises(SourceError, match=r"silo.cute\(function, signature=..., block=..., grid=...\) makes a kernel"):
        kind_reading(functions.add)


def test_silo_cute_makes_a_kernel():
    made = silo.cute(functions.add, block="BLOCK", space={"BLOCK": [128, 256]}, grid=lambda a: (a.n,), key=["n"])
    assert made.kernel.source.kind == "cute"
    assert made.kernel.config_names == ("BLOCK",)
    assert made.name == "add"
    assert kind_reading(cute(functions.add, block=1)) is kind_named("cute")


def test_dynamic_layouts_are_held_as_such():
    made = source(functions.add, block=128, layouts="dynamic")
    assert made.extents == HeldExtents.of({"x": ExtentKind.DYNAMIC, "out": ExtentKind.DYNAMIC})


def test_declaring_a_kernel_imports_nothing_of_the_dsl():
    program = (
        "import sys, silo; import silo.kinds.cute.front.cute_source; silo.cute; "
        "assert not {'cutlass', 'torch', 'numpy', 'tvm_ffi'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
