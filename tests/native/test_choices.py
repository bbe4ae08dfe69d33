"""Calls from Python, calls from C and a search choose the same; ``python -m tests.fuzz.choices`` does at length."""

import hashlib

import pytest

from core_choice import Checker
from fuzz.choice_bundles import PLACES, heads, write
from fuzz.choice_calls import DEVICES, Case, Given
from fuzz.choice_damage import compare_damaged
from fuzz.choice_place import Place
from fuzz.choices import Comparison, Tally, known_heads
from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.contents import BundleContents, BundleKernel, BundleVariant
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.device import Target
from silo.core.expressions import Argument, Const, Op, OpKind
from silo.core.extents import Extents
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.frozen import replace

KERNELS = heads()
F32, F16 = dtype("float32"), dtype("float16")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("choices") / "made.silo"
    write(path, KERNELS, seed=3, variants=8)
    return path


@pytest.mark.parametrize("name", [head.name for head in KERNELS])
def test_python_and_c_choose_the_same_variant_and_grid(made, name):
    comparison, tally = Comparison(made, known_heads(KERNELS)), Tally()
    comparison.held_alike(name)
    for place in PLACES:
        comparison.run(name, place, 200, seed=11, tally=tally)
    comparison.close()
    assert not tally.differences, tally.differences[0]
    assert tally.calls == 200 * len(PLACES)
    assert tally.outcomes["chosen"] > 100
    assert tally.searched > 50


def test_bundles_that_say_odd_things_are_refused_or_chosen_from_alike(tmp_path):
    tally = Tally()
    compare_damaged(tmp_path, KERNELS, 120, seed=5, tally=tally)
    assert not tally.differences, tally.differences[0]
    assert tally.outcomes["opened"] > 10
    assert tally.outcomes["not opened"] > 10


def array(of=F32, address=1 << 20, shape=(64,)):
    return Given("array", None, of, address, shape, tuple(1 for _ in shape))


def variants_of_add(target="cuda:sm_80"):
    """For float32 and float16, all of which assume alignment, integers of 32 bits and one value of MODE."""
    kind = ParameterKind
    for number, element in enumerate((F32, F16)):
        typed = Signature(
            (
                Parameter("x", kind.POINTER, element),
                Parameter("n", kind.INTEGER, dtype("int32")),
                Parameter("MODE", kind.CONSTEXPR),
                Parameter("BLOCK", kind.CONSTEXPR),
            )
        )
        yield Variant(
            "add",
            "0" * 64,
            typed,
            Specialization((("x", Fact.ALIGNED_16),), (("MODE", "fast"),)),
            Config.of(BLOCK=64 << number, num_warps=4),
            Target.parse(target),
        )


def bundle_of(folder, variants, **head):
    """A bundle of the one kernel, opened by C."""
    data = b"code"
    ref = BlobRef(hashlib.sha256(data).hexdigest(), "cubin", len(data))
    packed = [
        BundleVariant(Artifact(one, LaunchInfo(entry="add", layout=()), ref, (), "made up 1", ref.sha256), "made up")
        for one in variants
    ]
    names = ("x", "n")
    constants = tuple(Parameter(name, ParameterKind.CONSTEXPR) for name in ("MODE", "BLOCK"))
    signature = Signature((*map(Parameter, names), *constants))
    kernel = BundleKernel("add", signature, config_names=("BLOCK",), variants=tuple(packed), **head)
    write_bundle(folder / "add.silo", BundleContents((kernel,)), lambda _: data)
    return Checker((folder / "add.silo").read_bytes())


def refusal(checker, place="cuda:sm_90a", options=None, grid=(1, 1, 1), **given):
    """The code and the text that a call of ``add`` is refused with."""
    given = {"x": array(), "n": Given("int", 64), "MODE": Given("text", "fast"), **given}
    case = Case({name: one for name, one in given.items() if one is not None}, options or {}, grid)
    where = Place(Target.parse(place))
    asked = checker.asked("add", ("x", "n", "MODE", "BLOCK"), case, DEVICES[where.target.kind], where)
    return checker.choose(asked)


KIND, NULL, MISSING, DTYPE, MISALIGNED, SHAPE, NO_GRID, NO_VALUE, NO_VARIANT = 24, 23, 22, 25, 26, 27, 28, 29, 30


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"x": array(dtype("int32"))}, DTYPE, "argument 'x' is an array of int32, and it takes float"),
        ({"n": Given("int", 1 << 40)}, DTYPE, "argument 'n' needs int64, and it takes int32"),
        ({"x": array(F16, (1 << 20) + 2)}, MISALIGNED, "argument 'x' is not at a multiple of 16 bytes"),
        ({"x": Given("float", 1.5)}, KIND, "argument 'x' is a float, and it takes an array"),
        ({"n": array()}, KIND, "argument 'n' is an array, and it takes an integer"),
        ({"x": Given("none")}, NULL, "argument 'x' is None, and it was compiled for a value"),
        ({"x": Given("none"), "n": Given("int", 1 << 40)}, NULL, "argument 'x' is None"),
    ],
)
def test_what_every_variant_lacks_has_a_code_of_its_own(tmp_path, given, code, words):
    checker = bundle_of(tmp_path, list(variants_of_add("cuda:sm_90")) + list(variants_of_add("hip:gfx942")))
    found, text = refusal(checker, **given)
    assert found == code
    assert text.startswith(f"add: {words}")
    assert "bundle has no code for cuda:sm_90a that takes it" in text


def test_what_the_config_does_not_set_is_missing(tmp_path):
    bare = [replace(one, config=Config.of(num_warps=4)) for one in variants_of_add("cuda:sm_90")]
    code, text = refusal(bundle_of(tmp_path, bare))
    assert code == MISSING
    assert "argument 'BLOCK' is left to the config, and its config does not have it" in text


def test_a_shape_that_no_code_was_made_for(tmp_path):
    extents = (("x", Extents((128, 8))),)
    shaped = [
        replace(one, specialization=replace(one.specialization, extents=extents))
        for one in variants_of_add("cuda:sm_90")
    ]
    code, text = refusal(bundle_of(tmp_path, shaped))
    assert code == SHAPE
    assert "argument x: shape (64,), this variant was built for (128, 8)" in text


def test_a_grid_that_is_needed_and_not_given(tmp_path):
    fixed = [
        replace(one, specialization=replace(one.specialization, grid=(8, 1, 1)))
        for one in variants_of_add("cuda:sm_90")
    ]
    checker = bundle_of(tmp_path, fixed)
    assert refusal(checker, grid=None)[0] == NO_GRID
    assert refusal(checker)[0] == NO_VARIANT
    assert "the grid is (1, 1, 1), and this variant was built for (8, 1, 1)" in checker.details[0]


def test_a_derived_constant_without_a_value(tmp_path):
    per = Op(OpKind.FLOORDIV, (Const(64), Argument("n")))
    checker = bundle_of(tmp_path, variants_of_add("cuda:sm_90"), derived=(("BLOCK", per),))
    code, text = refusal(checker, n=Given("int", 0))
    assert code == NO_VALUE
    assert "BLOCK cannot be computed: floordiv(64, 0): division by zero" in text


def test_anything_else_is_told_of_each_variant(tmp_path):
    checker = bundle_of(tmp_path, [*variants_of_add("cuda:sm_90"), *variants_of_add("hip:gfx942")])
    code, text = refusal(checker, options={"num_warps": 8})
    assert code == NO_VARIANT
    assert text == (
        "bundle: no variant fits add(x=float32[64], aligned16; n=64, int32, divisible16; MODE='fast'; num_warps=8)"
        " on cuda:sm_90a"
    )
    cuda, hip = "add for cuda:sm_90, BLOCK={}, num_warps=4", "add for hip:gfx942, BLOCK={}, num_warps=4"
    single, half = "(x: *float32, n: int32)", "(x: *float16, n: int32)"
    assert checker.details == [
        f"{cuda.format(64)} {single}: num_warps=8 was asked for, and it has num_warps=4",
        f"{cuda.format(128)} {half}: x is an array of float32, and it takes float16",
        f"{hip.format(64)} {single}: built for hip, the device is cuda",
        f"{hip.format(128)} {half}: built for hip, the device is cuda",
    ]


def test_no_code_for_the_device_is_not_about_the_arguments(tmp_path):
    checker = bundle_of(tmp_path, variants_of_add("cuda:sm_80"))
    assert refusal(checker, x=array(dtype("int8")))[0] == NO_VARIANT
    assert len(checker.details) == 2
    assert "sm_80 code runs on 8.x devices only, the device has 9.0" in checker.details[0]
