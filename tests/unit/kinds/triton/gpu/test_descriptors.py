"""Kernels that take tensor descriptors: types, compiled layouts, launch info, hooks, dispatch. Needs Triton, no GPU."""
# pyright: reportMissingImports=false

import re
import sys
from dataclasses import fields
from importlib.util import find_spec

import pytest

from silo.artifacts.binary_inspection import BinaryKernel
from silo.core.argument_facts import ArgumentFacts
from silo.core.compound_arguments import TensorDescriptor
from silo.core.config import Config
from silo.core.device import Target
from silo.core.launch_info import AbiType, LayoutSlot, TensorMap
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.errors import ArgumentError, CompileError, SourceError, UnsupportedError
from silo.kinds.triton.front.adapter import descriptor_type, lower_for_gpu
from silo.kinds.triton.front.gpu_layout import argument_slots, complete_layout, tensor_maps
from silo.kinds.triton.front.ssa_facts import effects_of
from silo.kinds.triton.front.triton_source import CallDecidesError, HookEffects, effects_of_hook
from silo.kinds.triton.front.triton_specialize import specialize
from silo.kinds.triton.front.ttir import parse_ttir
from silo.kinds.triton.gpu.gpu_compiler import TritonCompiler
from silo.launch.arguments import (
    CallArgument,
    OneVariant,
    SeenCall,
    ValueKind,
    block_shape_of,
    describe_call,
    read_call,
)
from silo.launch.array_parts import is_descriptor, map_problem

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, scale, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([m, k]), b.load([k, n]), total)
    c.store([m, n], (total * scale).to(tl.float16))


@triton.jit
def unused(spare, x, out, AT: tl.constexpr):
    tl.store(out, x.shape[0] + x.strides[0])
    x.store([AT, 0], x.load([0, 0]))


@triton.jit
def add(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


def blocks(arguments):
    arguments["a"].block_shape = [arguments["BM"], arguments["BK"]]
    arguments["b"].block_shape = [arguments["BK"], arguments["BN"]]
    arguments["c"].block_shape = [arguments["BM"], arguments["BN"]]


def some_blocks(arguments):
    arguments["a"].block_shape = [arguments["BM"], arguments["BK"]]


def clears(arguments):
    arguments["c"].base.zero_()


def tuned(first, second):
    configs = [
        triton.Config({"BM": 64, "BN": 128, "BK": 32}, pre_hook=first),
        triton.Config({"BM": 128, "BN": 64, "BK": 64}, pre_hook=second),
    ]
    return triton.autotune(configs, key=["K"])(matmul)
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "silo_descriptor_kernels.py"
    path.write_text(KERNELS)
    sys.path.insert(0, str(path.parent))
    try:
        import silo_descriptor_kernels
    finally:
        sys.path.remove(str(path.parent))
    return silo_descriptor_kernels


def described(element, *block):
    return ArgumentFacts(dtype=dtype(element), is_pointer=True, block_shape=block)


def source(function):
    from silo.kinds.triton.front.triton_source import TritonSource

    return TritonSource.of(function)


def build(function, target, arguments, config):
    kernel = source(function)
    signature, specialization = kernel.specialize(arguments)
    constants = (*specialization.constants, *kernel.constants_of(config, specialization).items())
    variant = Variant(
        kernel.name,
        kernel.fingerprint,
        signature,
        Specialization(specialization.facts, constants),
        config,
        Target.parse(target),
    )
    compiler = TritonCompiler()
    return compiler.compile(compiler.lower(kernel, variant).job).launch


MATMUL = {
    "a": described("float16", 64, 32),
    "b": described("float16", 32, 128),
    "c": described("float16", 64, 128),
    "scale": ArgumentFacts(value=0.5),
    "K": ArgumentFacts(value=256),
}
CONFIG = Config.of(BM=64, BN=128, BK=32)


def mapped(name, rank=2):
    return [
        (name, "tensormap", ""),
        *((name, "i32", f"shape.{axis}") for axis in range(rank)),
        *((name, "i64", f"stride.{axis}") for axis in range(rank)),
    ]


def apart(name, flags, rank=2):
    return [
        (name, "ptr", ""),
        *((name, "i64", f"{what}.{axis}") for what in ("shape", "stride") for axis in range(rank)),
        *((name, "i1", flag) for flag in flags),
        *((name, "i32", f"shape.{axis}") for axis in range(rank)),
        *((name, "i64", f"stride.{axis}") for axis in range(rank)),
    ]


def flags_here():
    import triton

    return ("nan",) if triton.__version__.startswith("3.6") else ("nan", "tf32")


def slots(launch):
    return [(slot.name, slot.type.value, slot.part) for slot in launch.layout if slot.name]


SCALARS = [("scale", "fp32", ""), ("K", "i32", "")]


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_100a"])
def test_where_there_are_tensor_maps(kernels, target):
    launch = build(kernels.matmul, target, MATMUL, CONFIG)
    assert slots(launch) == [*mapped("a"), *mapped("b"), *mapped("c"), *SCALARS]
    # float16 is 6. Swizzles of 64 and 128 bytes are 2 and 3; a box is not a wider than its swizzle.
    assert launch.tensor_maps == (
        TensorMap("a", 2, 2, 6, (64, 32)),
        TensorMap("b", 3, 2, 6, (32, 64)),
        TensorMap("c", 3, 2, 6, (64, 64)),
    )
    assert all(map_problem(one) is None for one in launch.tensor_maps)


@pytest.mark.parametrize("target", ["cuda:sm_80", "hip:gfx942"])
def test_where_there_are_none(kernels, target):
    launch = build(kernels.matmul, target, MATMUL, CONFIG)
    flags = flags_here()
    assert slots(launch) == [*apart("a", flags), *apart("b", flags), *apart("c", flags), *SCALARS]
    assert launch.tensor_maps == ()


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
def test_a_descriptor_that_the_kernel_does_not_use(kernels, target):
    arguments = {
        "spare": described("bfloat16", 16),
        "x": described("float32", 16, 16),
        "out": ArgumentFacts.array("int64"),
    }
    launch = build(kernels.unused, target, arguments, Config.of(AT=16))
    flags = flags_here()
    forms = (
        [*mapped("spare", 1), *mapped("x")]
        if target == "cuda:sm_90"
        else [*apart("spare", flags, 1), *apart("x", flags)]
    )
    assert slots(launch) == [*forms, ("out", "ptr", "")]


@pytest.mark.parametrize(
    ("element", "bytes_", "type_"),
    [
        ("int8", 1, 0),
        ("uint16", 2, 1),
        ("uint32", 4, 2),
        ("int32", 4, 3),
        ("uint64", 8, 4),
        ("int64", 8, 5),
        ("float32", 4, 7),
        ("float64", 8, 8),
        ("bfloat16", 2, 9),
        ("float8_e4m3fn", 1, 0),
    ],
)
def test_element_types_by_the_numbers_of_the_driver(kernels, element, bytes_, type_):
    arguments = {
        "spare": described(element, 8, 64),
        "x": described("float32", 16, 16),
        "out": ArgumentFacts.array("int64"),
    }
    first = build(kernels.unused, "cuda:sm_90", arguments, Config.of(AT=16)).tensor_maps[0]
    assert (first.name, first.element_bytes, first.element_type) == ("spare", bytes_, type_)


def test_metadata_that_is_not_about_these_arguments():
    arguments = [LayoutSlot("x", AbiType.TENSORMAP), LayoutSlot("x", AbiType.I32, "shape.0")]
    entry = {"swizzle": 0, "elem_size": 2, "elem_type": 10, "block_size": [64], "fp4_padded": True}
    assert tensor_maps(arguments, {"tensordesc_meta": [entry]}) == (TensorMap("x", 0, 2, 9, (64,), fp4_padded=True),)
    assert tensor_maps(arguments, {"tensordesc_meta": []}) == tensor_maps(arguments, {}) == ()
    with pytest.raises(CompileError, match="describes 2 tensor descriptors; the kernel takes 1"):
        tensor_maps(arguments, {"tensordesc_meta": [entry, entry]})
    with pytest.raises(UnsupportedError, match="the descriptor x is an im2col one"):
        tensor_maps(arguments, {"tensordesc_meta": [{**entry, "is_im2col": True}]})
    with pytest.raises(UnsupportedError, match="the descriptor x becomes one of AMD's tensor data mover"):
        tensor_maps(arguments, {"tensordesc_meta": [{"elem_bits": 16, "block_size": [64]}]})


def kernel_of(*sizes):
    """A kernel of a binary with parameters of these sizes."""
    places = tuple((8 * index, size) for index, size in enumerate(sizes))
    values = dict.fromkeys((field.name for field in fields(BinaryKernel)), 0)
    return BinaryKernel(**{**values, "entry": "f", "parameters": places})


def test_the_binary_decides_which_flags_there_are():
    signature = Signature((Parameter("d", ParameterKind.DESCRIPTOR, dtype("float16")),))
    given = argument_slots(signature, Specialization((), (("d", (64,)),)))
    one_flag, two_flags = [8, 8, 8, 1, 4, 8], [8, 8, 8, 1, 1, 4, 8]
    for hidden in ([], [8], [8, 8]):
        assert [slot.part for slot in complete_layout(given, kernel_of(*one_flag, *hidden))][3:6] == [
            "nan",
            "shape.0",
            "stride.0",
        ]
        assert [slot.part for slot in complete_layout(given, kernel_of(*two_flags, *hidden))][3:5] == ["nan", "tf32"]
    with pytest.raises(CompileError, match="f takes 3 parameters in the binary"):
        complete_layout(given, kernel_of(128, 4, 8))  # there are maps, and nothing says how they are encoded
    form = TensorMap("d", 0, 2, 6, (64,))
    assert complete_layout(given, kernel_of(128, 4, 8), [form])[:3] == given
    with pytest.raises(CompileError, match="the parameter d has 8 bytes at 0 in the binary"):
        complete_layout(given, kernel_of(8, 4, 8), [form])
    with pytest.raises(CompileError, match="the descriptor d has no block shape"):
        argument_slots(signature, Specialization())
    config = Config.of({"d": (64,)})
    assert argument_slots(signature, Specialization(), config) == given


# ---- specialisation and hooks ----


def test_a_descriptor_is_specialised_by_its_block_shape():
    untyped = Signature((Parameter("d"), Parameter("p", ParameterKind.POINTER, dtype("float16"))))
    signature, found = specialize(untyped, {"d": described("bfloat16", 64, 32), "p": ArgumentFacts.array("float16")})
    assert (signature["d"].kind, signature["d"].dtype) == (ParameterKind.DESCRIPTOR, dtype("bfloat16"))
    assert found == Specialization((("p", Fact.ALIGNED_16),), (("d", (64, 32)),))
    with pytest.raises(ArgumentError, match="p is annotated as float16; it takes no tensor descriptor"):
        specialize(untyped, {"d": ArgumentFacts(value=1), "p": described("float16", 64)})


def test_block_shapes_that_configs_set_are_constants_of_the_config(kernels):
    kernel = source(kernels.tuned(kernels.blocks, kernels.blocks))
    _, found = kernel.specialize({**MATMUL, "a": described("float16", 1, 1)})
    assert {name for name, fact in found.facts if fact is Fact.CONFIG_BLOCK} == {"a", "b", "c"}
    assert found.constants == ()
    first, second = kernel.space.configs()
    assert kernel.constants_of(first, found) == {"a": (64, 32), "b": (32, 128), "c": (64, 128)}
    assert kernel.constants_of(second, found) == {"a": (128, 64), "b": (64, 64), "c": (128, 64)}
    assert kernel.constants_of(Config.of(BM=16, BN=16, BK=16), found)["a"] == (
        16,
        16,
    )  # one that the author did not list
    assert kernel.constants_of(first, Specialization()) == {}
    pointers = {**MATMUL, **{name: ArgumentFacts.array("float16") for name in "abc"}}
    _, found = kernel.specialize(pointers)
    assert {fact for _, fact in found.facts} == {Fact.ALIGNED_16, Fact.DIVISIBLE_16}


def test_configs_that_disagree_on_which_shapes_they_set(kernels):
    kernel = source(kernels.tuned(kernels.blocks, kernels.some_blocks))
    _, found = kernel.specialize(MATMUL)
    first, second = kernel.space.configs()
    assert set(kernel.constants_of(first, found)) == {"a", "b", "c"}
    with pytest.raises(SourceError, match=r"set the block shape of b, c in a pre_hook, and \(BK=64, BM=128"):
        kernel.constants_of(second, found)


@pytest.mark.parametrize(
    "decide",
    [
        lambda given: bool(given["flag"]),
        lambda given: given["flag"] == 1,
        lambda given: given["flag"] != 1,
        lambda given: given["flag"] in (1, 2),
        lambda given: given["flag"] > 1,
        lambda given: {given["flag"]: 1},
        lambda given: given["a"].shape[0] > 64,
    ],
)
def test_a_hook_that_decides_by_the_call_is_not_understood(decide):
    def hook(given):
        given["a"].block_shape = [64] if decide(given) else [32]

    descriptor = descriptor_type()
    assert effects_of_hook(hook, ("a", "flag"), {"BM": 64}) is None
    assert effects_of_hook(hook, ("a", "flag"), {"BM": 64}, descriptor) is None


def test_a_hook_may_ask_whether_there_is_a_descriptor():
    def hook(given):
        if given["a"] is not None and given.get("other") is None:
            given["a"].block_shape = [given["BM"]]

    assert effects_of_hook(hook, ("a",), {"BM": 64}) == HookEffects({"a": (64,)})


def test_a_hook_that_does_more_is_refused(kernels):
    import silo

    silo.kernel(kernels.tuned(kernels.blocks, kernels.blocks))
    with pytest.raises(SourceError, match=r"the pre_hook 'clears' of the config \(BK=64.* Silo runs no hook"):
        silo.kernel(kernels.tuned(kernels.blocks, kernels.clears))
    silo.kernel(space={"BM": [64], "BN": [64], "BK": [32]})(kernels.tuned(kernels.blocks, kernels.clears))


def test_effects_of_descriptors_are_known(kernels):
    kernel = source(kernels.unused)
    arguments = {
        "spare": described("float16", 16),
        "x": described("float32", 16, 16),
        "out": ArgumentFacts.array("int64"),
    }
    signature, found = kernel.specialize(arguments)
    text = lower_for_gpu(kernel.function, signature, found, Config.of(AT=16), Target.parse("cuda:sm_90a")).text
    assert effects_of(parse_ttir(text), signature, found) == {
        "spare": Effect.NONE,
        "x": Effect.BOTH,
        "out": Effect.WRITE,
    }


# ---- dispatch ----


def variant_for(block, *facts, element="float16", effect=Effect.BOTH):
    signature = Signature((Parameter("d", ParameterKind.DESCRIPTOR, dtype(element), effect),))
    constants = Specialization(tuple(("d", fact) for fact in facts), (("d", block),))
    return Variant("k", "0" * 64, signature, constants, Config(), Target.parse("cuda:sm_90a"))


def call_with(kind=ValueKind.DESCRIPTOR, element="float16", block=(64, 32), *, readonly=False):
    value = TensorDescriptor(None, [1024, 512], [512, 1], block)
    one = CallArgument("d", kind, value, dtype(element), aligned16=True, readonly=readonly, ndim=2, block_shape=block)
    return SeenCall("k", (one,), {}, (2, 0))


@pytest.mark.parametrize(
    ("variant", "call", "reason"),
    [
        (variant_for((64, 32)), call_with(), None),
        (variant_for((64, 64)), call_with(), r"d has the block shape \[64, 32\], and it was compiled for \[64, 64\]"),
        (variant_for((64, 64), Fact.CONFIG_BLOCK), call_with(), None),
        (variant_for((64,), Fact.CONFIG_BLOCK), call_with(), "d has 2 dimensions, and it takes 1"),
        (variant_for((64, 32)), call_with(element="bfloat16"), "of bfloat16, and it takes float16"),
        (variant_for((64, 32)), call_with(readonly=True), "has a read-only base"),
        (variant_for((64, 32), effect=Effect.READ), call_with(readonly=True), None),
        (variant_for((64, 32)), call_with(ValueKind.POINTER), "d is an array, and it takes a tensor descriptor"),
        (variant_for(64), call_with(), "it was compiled for none"),
    ],
)
def test_which_code_takes_which_descriptor(variant, call, reason):
    decision = OneVariant(variant).decision(call)
    assert bool(decision) == (reason is None)
    assert reason is None or re.search(reason, decision.reason)


def test_code_that_assumes_less_than_2_gib():
    signature = Signature((Parameter("p", ParameterKind.POINTER, dtype("float16")),))
    assumed = Specialization((("p", Fact.POINTER_RANGE_32),))
    variant = Variant("k", "0" * 64, signature, assumed, Config(), Target.parse("hip:gfx942"))

    def call(*, range32):
        return SeenCall(
            "k", (CallArgument("p", ValueKind.POINTER, None, dtype("float16"), range32=range32),), {}, (10, 0)
        )

    assert OneVariant(variant).decision(call(range32=True))
    assert "less than 2 GiB" in OneVariant(variant).decision(call(range32=False)).reason
    assert call(range32=True).facts()["p"].range32


def test_the_guard_words_of_a_descriptor_in_python():
    assert block_shape_of(0) == ()
    assert block_shape_of(5 | 1 << 3 | 2 << 8 | 3 << 13 | 4 << 18 | 20 << 23) == (2, 4, 8, 16, 1 << 20)
    value = TensorDescriptor(None, [1024, 512], [512, 1], [64, 32])
    call = read_call("k", ("d",), (((8, 2, 16, 1, 2 | 6 << 3 | 5 << 8, None),), (value,), {}, (2, 0), None))
    one = call["d"]
    assert (one.kind, one.dtype, one.ndim, one.block_shape) == (ValueKind.DESCRIPTOR, dtype("float16"), 2, (64, 32))
    assert one.facts(lambda value: value) == described("float16", 64, 32)
    assert "a tensor descriptor of float16, block [64, 32], aligned16" in describe_call(call)


def test_what_is_a_descriptor():
    from triton.tools.tensor_descriptor import TensorDescriptor as Tritons

    assert is_descriptor(TensorDescriptor(None, [1], [1], [1]))
    assert is_descriptor(object.__new__(Tritons))
    assert not is_descriptor(object())


# ---- ROCm pointers ----


def test_pointer_range_is_an_attribute_of_the_argument(kernels):
    kernel = source(kernels.add)
    arguments = {
        "x": ArgumentFacts(dtype=dtype("float32"), is_pointer=True, range32=True),
        "out": ArgumentFacts(dtype=dtype("float32"), is_pointer=True, address=4, range32=True),
        "n": ArgumentFacts(value=100),
    }
    signature, found = kernel.specialize(arguments)
    assert found.facts_of("x") == {Fact.ALIGNED_16, Fact.POINTER_RANGE_32}
    assert found.facts_of("out") == {Fact.POINTER_RANGE_32}
    target = Target.parse("hip:gfx942")
    text = lower_for_gpu(kernel.function, signature, found, Config.of(BLOCK=256), target).text
    assert text.count("tt.pointer_range = 32") == 2
    assert "tt.divisibility = 16 : i32, tt.pointer_range = 32" in text
    build(kernels.add, "hip:gfx942", arguments, Config.of(BLOCK=256))
    excluded = Signature((Parameter("x", specialize=False),))
    assert specialize(excluded, {"x": arguments["x"]})[1].facts == ()
    unaligned = Signature((Parameter("x", align=False),))
    assert specialize(unaligned, {"x": arguments["x"]})[1].facts == (("x", Fact.POINTER_RANGE_32),)


def test_what_is_known_before_a_config_is_chosen():
    found = Specialization((("d", Fact.CONFIG_BLOCK), ("x", Fact.ALIGNED_16)), (("d", (64, 32)), ("e", (16,))))
    assert found.of_call() == Specialization(found.facts, (("e", (16,)),))
    assert found.of_call().of_call() == found.of_call()
    assert [fact for fact in Fact if not fact.is_assumption] == [Fact.NONE, Fact.CONFIG_BLOCK]
    assert Specialization.from_json(found.to_json()) == found


def test_a_hook_asks_for_a_constexpr_of_the_call():
    def hook(given):
        block = [given["BM"], given["BN"] // 2 if given["SPLIT"] else given["BN"]]
        given["c"].block_shape = block
        if given["SPLIT"] == 7:
            given["c"].base.zero_()

    names, split = ("c", "SPLIT"), frozenset({"SPLIT"})
    values = {"BM": 64, "BN": 128}
    with pytest.raises(CallDecidesError):
        effects_of_hook(hook, names, values, None, split)
    assert effects_of_hook(hook, names, {**values, "SPLIT": 1}, None, split) == HookEffects({"c": (64, 64)})
    assert effects_of_hook(hook, names, {**values, "SPLIT": 0}, None, split) == HookEffects({"c": (64, 128)})
    assert effects_of_hook(hook, names, {**values, "SPLIT": 7}, None, split) is None
    for decide in (
        lambda v: [v],
        lambda v: [v * 2],
        lambda v: [8 - v],
        lambda v: [-v],
        lambda v: [v.n],
        lambda v: [*v],
    ):

        def other(given, decide=decide):
            given["c"].block_shape = decide(given["SPLIT"])

        with pytest.raises(CallDecidesError):
            effects_of_hook(other, names, values, None, split)


def test_shapes_that_a_call_decides(kernels):
    def hook(given):
        if given["BM"] > 100 and given["K"] > 3:
            given["a"].block_shape = [1, 1]
        given["a"].block_shape = [given["BM"], given["BK"]]
        given["b"].block_shape = [given["BK"], given["BN"]]
        given["c"].block_shape = [given["BM"], given["BN"] if given["BN"] < 128 else 64]

    triton = pytest.importorskip("triton")
    configs = [triton.Config({"BM": 64, "BK": 32}, pre_hook=hook)]
    kernel = source(triton.autotune(configs, key=[])(kernels.matmul))
    (config,) = kernel.space.configs()
    assert kernel.block_shapes == {}
    for width, expected in ((32, (64, 32)), (128, (64, 64))):
        _, found = kernel.specialize({**MATMUL, "BN": ArgumentFacts(value=width)})
        shapes = kernel.constants_of(config, found)
        assert (shapes["b"], shapes["c"]) == ((32, width), expected)
    configs = [triton.Config({"BM": 128, "BK": 32}, pre_hook=hook)]
    kernel = source(triton.autotune(configs, key=[])(kernels.matmul))  # it looks at K, a number of the call
    assert kernel.hooks.config_pre
