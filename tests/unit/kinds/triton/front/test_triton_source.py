"""Reading decorators, and specializing signatures by Triton's rules."""
# pyright: reportInvalidTypeForm=false, reportUndefinedVariable=false
# ruff: noqa: E402  # what follows needs Triton
# ruff: noqa: F722, F821  # kernels are written as Triton authors write them

from pathlib import Path

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed")
import triton.language as tl

from silo.core.argument_facts import ArgumentFacts as Facts
from silo.core.config import Config
from silo.core.protocols import Source
from silo.core.signature import NO_DEFAULT, ParameterKind
from silo.core.specialization import Fact, Specialization
from silo.core.values import FunctionValue, dtype
from silo.errors import ArgumentError, SourceError
from silo.kinds.triton.front.triton_source import HookEffects, TritonSource, effects_of_hook
from triton_samples import add, scaled


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=[1])
def kernel(x, m, n, k: tl.int64, f: "fp32", p: "*fp16", mode: tl.constexpr, BLOCK: tl.constexpr = 64, last=5):
    tl.store(x + k, m + n + f + tl.load(p) + BLOCK + last + mode)


CONFIGS = [
    triton.Config({"BLOCK": 32}, num_warps=2),
    triton.Config({"BLOCK": 64}, num_warps=8, num_stages=4, maxnreg=96),
]


def early(configs, named, **_):
    return configs


def model(**_):
    return 1.0


def heuristic(arguments):
    return arguments["n"] % 2


def test_a_plain_kernel():
    source = TritonSource.of(kernel)
    assert isinstance(source, Source)
    assert (source.kind, source.name, source.space, source.key) == ("triton", "kernel", None, ())
    assert source.location.rpartition(":")[0] == __file__
    line = int(source.location.rpartition(":")[2])
    assert Path(__file__).read_text().splitlines()[line - 1].startswith("def kernel(")
    found = source.signature
    assert found.names == ("x", "m", "n", "k", "f", "p", "mode", "BLOCK", "last")
    assert [parameter.kind.value for parameter in found.parameters] == [
        "any", "any", "any", "integer", "float", "pointer", "constexpr", "constexpr", "any",
    ]  # fmt: skip
    assert [parameter.specialize for parameter in found.parameters].index(False) == 2
    assert [parameter.align for parameter in found.parameters].index(False) == 1
    assert (found["BLOCK"].default, found["last"].default, found["x"].default) == (64, 5, NO_DEFAULT)
    assert (found["k"].dtype, found["f"].dtype, found["p"].dtype) == (dtype("i64"), dtype("fp32"), dtype("fp16"))
    assert len(source.fingerprint) == 64
    assert not source.hooks


@pytest.mark.parametrize("outer", ["autotune", "heuristics"])
def test_decorators_in_any_nesting(outer):
    tune = triton.autotune(
        CONFIGS, key=["m", "n"], reset_to_zero=["x"], restore_value=["p"],
        prune_configs_by={"early_config_prune": early, "perf_model": model, "top_k": 3},
    )  # fmt: skip
    guess = triton.heuristics({"mode": heuristic})
    source = TritonSource.of(tune(guess(kernel)) if outer == "autotune" else guess(tune(kernel)))
    assert source.function is kernel
    assert source.space is not None
    assert source.space.points == (
        Config.of(BLOCK=32, num_warps=2, num_stages=3),
        Config.of(BLOCK=64, num_warps=8, num_stages=4, maxnreg=96),
    )
    assert source.key == ("m", "n")
    assert (source.reset_to_zero, source.restore_value) == (("x",), ("p",))
    assert source.heuristics == {"mode": heuristic}
    assert (source.hooks.early_prune, source.hooks.perf_model, source.hooks.top_k) == (early, model, 3)
    assert (source.hooks.pre, source.hooks.post) == (None, None)  # Triton's own, which reset and restore, do not count
    assert source.fingerprint == TritonSource.of(kernel).fingerprint


def test_hooks_of_the_author_are_kept():
    def pre(arguments, reset_only=False):
        arguments["x"].zero_()

    def post(arguments, exception):
        pass

    source = TritonSource.of(triton.autotune(CONFIGS, key=[], pre_hook=pre, post_hook=post)(kernel))
    assert (source.hooks.pre, source.hooks.post) == (pre, post)


def test_hooks_that_set_block_shapes_are_understood():
    def shapes(arguments):
        block = arguments["BLOCK"]
        if arguments.get("mode", False):
            arguments["x"].block_shape = [block]
        arguments["p"].block_shape = [block, block // 2]

    def zero(arguments):
        arguments["x"].zero_()

    configs = [triton.Config({"BLOCK": 32}, pre_hook=shapes), triton.Config({"BLOCK": 64}, pre_hook=zero)]
    source = TritonSource.of(triton.autotune(configs, key=[])(kernel))
    first, second = source.space.points
    assert (source.block_shapes, source.shape_hooks) == ({}, {first: shapes})  # a call says what the mode is
    for mode, expected in ((0, {"p": (32, 16)}), (1, {"x": (32,), "p": (32, 16)})):
        facts = tuple((name, Fact.CONFIG_BLOCK) for name in expected)
        assert source.constants_of(first, Specialization(facts, (("mode", mode),))) == expected
    assert source.zeroed == {second: ("x",)}
    assert source.hooks.config_pre == ()


def test_a_hook_may_ask_for_the_class_of_a_descriptor():
    from triton.tools.tensor_descriptor import TensorDescriptor

    def hook(arguments):
        if isinstance(arguments["x"], TensorDescriptor):
            arguments["x"].block_shape = [arguments["BLOCK"]]

    assert effects_of_hook(hook, ("x",), {"BLOCK": 8}, TensorDescriptor) == HookEffects({"x": (8,)})
    assert effects_of_hook(hook, ("x",), {"BLOCK": 8}) == HookEffects({})
    assert effects_of_hook(lambda arguments: arguments["x"].data_ptr(), ("x",), {}) is None
    assert effects_of_hook(lambda arguments: arguments["nobody"], ("x",), {}) is None


def test_what_cannot_be_read_is_refused():
    with pytest.raises(SourceError, match="not a Triton kernel"):
        TritonSource.of(lambda x: x)
    twice = triton.autotune(CONFIGS, key=[])(triton.autotune(CONFIGS, key=[])(kernel))
    with pytest.raises(SourceError, match="has two"):
        TritonSource.of(twice)
    with pytest.raises(SourceError, match="sets WRONG"):
        TritonSource.of(triton.autotune([triton.Config({"WRONG": 3})], key=[])(kernel))
    with pytest.raises(SourceError, match="ir_override"):
        TritonSource.of(triton.autotune([triton.Config({}, ir_override="x.ttir")], key=[])(kernel))


# -- specialization --------------------------------------------------------------------------------------------------


def specialized(value, **changes):
    """Kind, dtype and facts of one plain argument; what `jit` would give it."""
    source = TritonSource.of(add)
    arguments = {name: Facts.array("fp32", 16) for name in ("x", "y", "out")}
    signature, found = source.specialize({**arguments, "n": value})
    return signature["n"].kind.value, signature["n"].dtype and signature["n"].dtype.short, found.facts_of("n")


NOTHING = frozenset()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Facts(1), ("integer", "i32", {Fact.EQUAL_1})),
        (Facts(16), ("integer", "i32", {Fact.DIVISIBLE_16})),
        (Facts(-32), ("integer", "i32", {Fact.DIVISIBLE_16})),
        (Facts(0), ("integer", "i32", {Fact.DIVISIBLE_16})),
        (Facts(17), ("integer", "i32", NOTHING)),
        (Facts((1 << 31) - 1), ("integer", "i32", NOTHING)),
        (Facts(1 << 31), ("integer", "i64", {Fact.DIVISIBLE_16})),
        (Facts(-(1 << 31) - 1), ("integer", "i64", NOTHING)),
        (Facts((1 << 63) + 1), ("integer", "u64", NOTHING)),
        (Facts(True), ("bool", "i1", NOTHING)),
        (Facts(1.0), ("float", "fp32", NOTHING)),
        (Facts(None), ("pointer", None, {Fact.NONE})),
        (Facts.array("bf16", 32), ("pointer", "bf16", {Fact.ALIGNED_16})),
        (Facts.array("bf16", 8), ("pointer", "bf16", NOTHING)),
    ],
)
def test_specialization_of_one_argument(value, expected):
    assert specialized(value) == expected


@pytest.mark.parametrize("value", [1, 16, -32, 0, 17, 1 << 31, -(1 << 31) - 1, (1 << 63) + 1, True, 2.5, None])
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("specialize", [True, False])
def test_scalars_agree_with_triton_itself(value, align, specialize):
    from triton._C.libtriton import native_specialize_impl
    from triton.backends.compiler import BaseBackend

    excluded = {
        "do_not_specialize": [] if specialize else ["n"],
        "do_not_specialize_on_alignment": [] if align else ["n"],
    }
    source = TritonSource.of(triton.jit(**excluded)(add.fn))
    arguments = {name: Facts.array("fp32", 16) for name in ("x", "y", "out")}
    signature, found = source.specialize({**arguments, "n": Facts(value)})
    kind, description = native_specialize_impl(BaseBackend, value, False, specialize, align)
    facts = found.facts_of("n")
    assert (kind == "constexpr") == bool(facts & {Fact.EQUAL_1, Fact.NONE})
    if kind != "constexpr":
        assert kind.replace("u1", "i1") == signature["n"].dtype.short
        assert (Fact.DIVISIBLE_16 in facts) == ("D" in (description or ""))


def call(**changes):
    arguments = {
        "x": Facts.array("fp32", 8), "m": Facts(32), "n": Facts(1), "k": Facts(32), "f": Facts(2),
        "p": Facts.array("fp16", 16), "mode": Facts(3),
    }  # fmt: skip
    merged = {**arguments, **changes}
    return TritonSource.of(kernel).specialize({name: value for name, value in merged.items() if value is not None})


def test_annotations_exclusions_defaults_and_constants():
    signature, found = call()
    assert signature.is_typed
    assert [str(parameter.dtype) for parameter in signature.parameters] == [
        "float32", "int32", "int32", "int64", "float32", "float16", "None", "None", "int32",
    ]  # fmt: skip
    assert found.facts == (("k", Fact.DIVISIBLE_16), ("p", Fact.ALIGNED_16))
    assert found.constants == (("mode", 3),)  # BLOCK stays open for a config


def test_an_annotated_integer_is_never_folded():
    signature, found = call(k=Facts(1))
    assert found.facts_of("k") == NOTHING
    assert signature["k"].kind is ParameterKind.INTEGER


def test_functions_descriptors_and_dtypes_are_constants():
    source = TritonSource.of(kernel)
    value = source.constant(scaled)
    assert isinstance(value, FunctionValue)
    assert source.constant(tl.float16) == dtype("fp16")
    assert source.constant(tl.constexpr((1, tl.int32))) == (1, dtype("i32"))
    with pytest.raises(SourceError, match="cannot be a constexpr value"):
        source.constant(object())
    signature, found = call(x=Facts(dtype=dtype("fp16"), is_pointer=True, block_shape=(4, 8)), mode=Facts(value))
    assert signature["x"].kind is ParameterKind.DESCRIPTOR
    assert found.constant_values == {"mode": value, "x": (4, 8)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"m": None}, "argument m is missing"),
        ({"other": Facts(1)}, "no parameter is called other"),
        ({"mode": Facts.array("fp32")}, "mode is a tl.constexpr"),
        ({"k": Facts(1 << 63)}, "does not fit"),
        ({"k": Facts(1.5)}, "not an integer"),
        ({"k": Facts.array("fp32")}, "it takes a number"),
        ({"f": Facts("a")}, "not a number"),
        ({"p": Facts(3)}, "takes an array"),
        ({"m": Facts(1 << 64)}, "does not fit in 64 bits"),
        ({"m": Facts("text")}, "annotate the parameter as tl.constexpr"),
        ({"k": Facts(None), "x": Facts.array("fp32")}, "cannot be None"),
    ],
)
def test_wrong_arguments_are_named(changes, message):
    with pytest.raises(ArgumentError, match=message):
        call(**changes)
