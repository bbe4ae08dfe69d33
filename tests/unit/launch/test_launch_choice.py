import enum
import hashlib
from dataclasses import replace

import numpy as np
import pytest

from fuzz.choice_place import Place
from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.contents import BundleContents, BundleKernel, BundleVariant
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.decisions import Accepted, Rejected
from silo.core.device import Target
from silo.core.launch_info import LaunchInfo
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.errors import NoVariantError
from silo.kernels.bundle_kernels import load
from silo.launch.arguments import OneVariant
from silo.launch.runtime import inspect_call, make_launcher

UNTYPED = Signature(
    (
        Parameter("x"),
        Parameter("out"),
        Parameter("n"),
        Parameter("scale", default=1.0),
        Parameter("flag", default=False),
        Parameter("MODE", ParameterKind.CONSTEXPR, default="sum"),
        Parameter("BLOCK", ParameterKind.CONSTEXPR),
    )
)


def never(call):
    raise AssertionError(f"asked about {call}")


def call_of(*arguments, **keywords):
    launch = make_launcher("k", UNTYPED, on_miss=never, config_names=("BLOCK",))
    return inspect_call(launch, UNTYPED, *arguments, **keywords)


def accepts(one, call):
    return OneVariant(one).decision(call)


def storage(shift=0, count=64, element=np.float32):
    raw = np.zeros(count * 8 + 32, np.uint8)
    start = -raw.ctypes.data % 16 + shift
    return raw[start : start + count * np.dtype(element).itemsize].view(element)


def variant(facts=(), constants=(), n="int32", config=None, element="float32"):
    pointer = Parameter("x", ParameterKind.POINTER, dtype(element), Effect.READ)
    return Variant(
        kernel="k",
        source="0" * 64,
        signature=Signature(
            (
                pointer,
                replace(pointer, name="out", effect=Effect.WRITE),
                Parameter("n", ParameterKind.INTEGER, dtype(n)),
                Parameter("scale", ParameterKind.FLOAT, dtype("float32"), default=1.0),
                Parameter("flag", ParameterKind.BOOL, dtype("bool"), default=False),
                Parameter("MODE", ParameterKind.CONSTEXPR, default="sum"),
                Parameter("BLOCK", ParameterKind.CONSTEXPR),
            )
        ),
        specialization=Specialization(tuple(facts), tuple(constants)),
        config=config or Config.of(BLOCK=64, num_warps=4),
        target=Target.parse("cpu:x86-64-v3"),
    )


ALIGNED = (("x", Fact.ALIGNED_16), ("out", Fact.ALIGNED_16))
GENERIC = variant()


@pytest.mark.parametrize(
    ("one", "change", "reason"),
    [
        (GENERIC, {}, None),
        (variant(ALIGNED), {}, None),
        (variant(ALIGNED), {"x": storage(4)}, "x is not at a multiple of 16 bytes"),
        (variant(ALIGNED), {"x": storage(4, element=np.int32)}, "x is an array of int32, and it takes float32"),
        (GENERIC, {"x": storage(4)}, None),
        (variant([("n", Fact.DIVISIBLE_16)]), {"n": 32}, None),
        (variant([("n", Fact.DIVISIBLE_16)]), {"n": 33}, "n is not a multiple of 16"),
        (variant([("n", Fact.EQUAL_1)]), {"n": 1}, None),
        (variant([("n", Fact.EQUAL_1)]), {"n": 2}, "n is not 1"),
        (GENERIC, {"n": 2**31}, "n needs int64, and it takes int32"),
        (variant(n="int64"), {"n": 5}, None),
        (variant(n="int64"), {"n": 2**63}, "n needs uint64, and it takes int64"),
        (variant(n="uint64"), {"n": 5}, "n needs int32, and it takes uint64"),
        (GENERIC, {"n": 2.0}, "n is a float, and it takes an integer"),
        (GENERIC, {"scale": 2}, "scale is an integer, and it takes a float"),
        (GENERIC, {"flag": 1}, "flag is an integer, and it takes a bool"),
        (GENERIC, {"x": None}, "x is None, and it was compiled for a value"),
        (GENERIC, {"x": 3}, "x is an integer, and it takes an array"),
        (variant([("x", Fact.NONE)]), {"x": None}, None),
        (variant([("x", Fact.NONE)]), {}, "x is given, and it was compiled for None"),
        (variant(constants=[("MODE", "sum")]), {}, None),
        (variant(constants=[("MODE", "max")]), {}, "MODE is 'sum', and it was compiled for 'max'"),
        (GENERIC, {"MODE": "sum"}, None),
        (GENERIC, {"MODE": "max"}, "MODE is 'max', and it was compiled for no value"),
        (GENERIC, {"BLOCK": 64}, None),
        (GENERIC, {"BLOCK": 32}, "BLOCK is 32, and it was compiled for 64"),
        (variant(config=Config.of(BLOCK=1)), {"BLOCK": True}, "BLOCK is True, and it was compiled for 1"),
        (variant(config=Config.of(num_warps=4)), {}, "BLOCK is left to the config"),
        (GENERIC, {"num_warps": 4}, None),
        (GENERIC, {"num_warps": 8}, "num_warps=8 was asked for, and it has num_warps=4"),
        (GENERIC, {"num_stages": 2}, "num_stages=2 was asked for, and it was compiled without"),
    ],
)
def test_each_assumption_decides(one, change, reason):
    arguments = {"x": storage(), "out": storage(), "n": 33, **change}
    decision = accepts(one, call_of(**arguments))
    if reason is None:
        assert decision, decision.reason
    else:
        assert not decision
        assert decision.reason.startswith(reason)


def test_a_read_only_array_fits_only_where_it_is_read():
    frozen = storage()
    frozen.flags.writeable = False
    assert accepts(GENERIC, call_of(frozen, storage(), 3))
    decision = accepts(GENERIC, call_of(storage(), frozen, 3))
    assert decision.reason == "out is read-only, and the kernel writes it"


def test_a_variant_of_another_signature():
    other = replace(GENERIC, signature=Signature((Parameter("z", ParameterKind.POINTER, dtype("float32")),)))
    assert accepts(other, call_of(storage(), storage(), 3)).reason.startswith("it has a parameter z")


@pytest.fixture
def bundled(tmp_path):
    """Makes a kernel of a bundle that has just these variants."""

    def make(*variants):
        data = b"code"
        ref = BlobRef(hashlib.sha256(data).hexdigest(), "so", len(data))
        packed = [
            BundleVariant(Artifact(one, LaunchInfo("k", ()), ref, (), "made up 1", ref.sha256), "made up")
            for one in variants
        ]
        kernel = BundleKernel("k", UNTYPED, config_names=("BLOCK",), variants=tuple(packed))
        write_bundle(tmp_path / "k.silo", BundleContents((kernel,)), lambda _: data)
        return load(tmp_path / "k.silo")["k"]

    return make


HERE = Place.of("cpu:x86-64-v4")


def test_the_most_specialised_comes_first(bundled):
    divisible = variant([*ALIGNED, ("n", Fact.DIVISIBLE_16)])
    wide = variant(n="int64")
    kernel = bundled(wide, GENERIC, divisible, variant(ALIGNED))
    call = call_of(storage(), storage(), 32)
    assert kernel.rank_numbers(call, HERE) == (2, 3, 1, 0)
    assert kernel.rank_numbers(call, HERE, 2) == (2, 3)
    lines = kernel.explain_on(call, HERE).split("\n")[2:]
    assert lines[2].startswith("chosen: k for cpu:x86-64-v3, BLOCK=64, num_warps=4 (x: *float32, out: *float32")
    assert lines[2].endswith(": assumes n divisible16, out aligned16, x aligned16")
    assert lines[1].startswith("accepted: ")
    assert lines[1].endswith(": assumes nothing of the arguments")
    assert kernel.rank_numbers(call_of(storage(4), storage(), 32), HERE) == (1, 0)


def test_equal_ones_keep_their_order(bundled):
    kernel = bundled(*(variant(config=Config.of(BLOCK=64, num_warps=warps)) for warps in (8, 1, 4)))
    assert kernel.rank_numbers(call_of(storage(), storage(), 32), HERE) == (0, 1, 2)


def test_no_variant_lists_each_with_its_reason(bundled):
    kernel = bundled(GENERIC, variant(element="float16"))
    with pytest.raises(NoVariantError) as caught:
        kernel.choose(call_of(storage(), storage(), 2**40), HERE)
    text = str(caught.value)
    assert text.startswith("k.silo: no variant fits k(x=float32[64] on cpu, aligned16; ")
    assert "n=1099511627776, int64, divisible16" in text
    assert "n needs int64, and it takes int32" in text
    assert "x is an array of float32, and it takes float16" in text
    assert len(caught.value.rejections) == 2
    assert "cpu:x86-64-v3" in caught.value.rejections[0]


def test_a_device_has_a_rule_of_its_own(bundled):
    """Stands for devices of plug-ins, and for Metal's versions."""

    class Newer(Place):
        def runs(self, target, blob_kind=""):
            return Accepted("newer") if target.kind == "cpu" else Rejected(f"no {blob_kind} for {target}")

    kernel, call = bundled(GENERIC), call_of(storage(), storage(), 32)
    assert kernel.rank_numbers(call, Newer.of("metal:4.0")) == (0,)
    with pytest.raises(NoVariantError, match="built for cpu, the device is metal"):
        kernel.choose(call, Place.of("metal:4.0"))

    class Refuses(Place):
        def runs(self, target, blob_kind=""):
            return Rejected(f"no {blob_kind} for {target}")

    with pytest.raises(NoVariantError, match="no so for cpu:x86-64-v3"):
        kernel.choose(call, Refuses.of("cpu:x86-64-v4"))


class Mode(enum.IntEnum):
    WIDE = 64


@pytest.mark.parametrize(
    ("value", "fits", "shown"),
    [
        (np.int64(64), True, ""),
        (Mode.WIDE, True, ""),
        (np.int64(32), False, "BLOCK is 32, and"),
        (1 << 70, False, f"BLOCK is {1 << 70}, and"),
        (64.0, False, "BLOCK is 64.0, and"),
        ([64], False, "BLOCK is [64], and"),
        ((64, ("a", None)), False, "BLOCK is (64, ('a', None)), and"),
        ("\u00e4\x1b\u202e\U000e0001'\n", False, 'BLOCK is "\u00e4\\x1b\\u202e\\U000e0001\'\\n", and'),
        ("\udc80", False, "BLOCK is '\\udc80', and"),
    ],
)
def test_constexprs_of_any_class_are_compared_and_shown(value, fits, shown):
    decision = accepts(GENERIC, call_of(storage(), storage(), 3, BLOCK=value))
    assert bool(decision) is fits
    assert decision.reason.startswith(shown)


def test_constants_are_compared_after_encoding():
    typed = variant(constants=[("MODE", dtype("float32"))])
    call = call_of(storage(), storage(), 3, MODE=np.float32)
    assert not OneVariant(typed).decision(call)
    assert OneVariant(typed).decision(call, lambda value: dtype("float32") if value is np.float32 else value)


def test_a_bool_where_an_integer_is_declared_is_a_number():
    """The guard holds the bucket of 1 for it, so it must lead to the same rule as 1 does."""
    declared = Signature((Parameter("n", ParameterKind.INTEGER, dtype("int64")),))
    launcher = make_launcher("k", declared, on_miss=never, key=("n",))
    number = inspect_call(launcher, declared, True)["n"].number
    assert (type(number), number) == (int, 1)
