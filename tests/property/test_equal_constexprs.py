"""Constexprs that Python calls equal (1, True, 1.0; 0.0, -0.0) are told apart by every value and memo that holds them.

Stands for every dictionary, set and comparison that a constexpr, or a value made of constexprs, is looked up in.
"""

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core_choice import Maker, library
from fake_backend.compiler import FakeCompiler
from silo.building import compilation
from silo.bundle.contents import BundleKernel, BundleVariant
from silo.bundle.verify import shared_by_look_alikes
from silo.core.config import Config, ConfigSet
from silo.core.device import Target
from silo.core.dispatch import DispatchRules, bucket_from_json, bucket_of, bucket_to_json
from silo.core.recipes import ScalarRecipe
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import canonical_json, digest, has_look_alike, identity_of, same_values, value_to_json
from silo.core.variant import Variant
from silo.integrations.jax.jax_call_form import Scalar
from silo.launch.arguments import CallArgument, OneVariant, SeenCall, ValueKind

LOOK_ALIKES = [1, True, 1.0, 0, False, 0.0, -0.0, 2, 2.0, float("nan"), float("inf"), None, "1", (1,), (True,), (1.0,)]
LOOK_ALIKES += [((0.0,), 1), ((-0.0,), True), (float("nan"),), 2**53, 2**53 + 1, float(2**53), 1 << 70]
scalars = st.sampled_from(LOOK_ALIKES) | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=3)
constexprs = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
TARGET = Target.parse("fake:one")


def written(value):
    return canonical_json(value_to_json(value))


def holders(value):
    """Values of every class that holds a constexpr, all made of this one."""
    constant, config = (("V", value),), Config.of(V=value)
    yield config
    yield Config(options=constant)
    yield Specialization(constants=constant)
    yield Parameter("V", ParameterKind.CONSTEXPR, default=value)
    yield Variant("k", "f" * 64, Signature(()), Specialization(constants=constant), Config(), TARGET)
    yield Variant("k", "f" * 64, Signature((Parameter("V", default=value),)), Specialization(), config, TARGET)
    yield ScalarRecipe(value)
    yield Scalar.of(value)
    yield DispatchRules(("V",), ((bucket_of([value]), Config()),), Config())
    yield bucket_of([value])
    yield bucket_from_json(bucket_to_json((value,)))


@given(constexprs, constexprs)
@example(1, True)
@example(0.0, -0.0)
@example(float("nan"), float("nan"))
@example(2**53, 2**53 + 1)
def test_values_are_equal_exactly_if_their_canonical_forms_are(one, other):
    same = written(one) == written(other)
    assert (identity_of(one) == identity_of(other)) is same
    assert same_values({"V": one}, {"V": other}) is same
    if isinstance(one, int) and isinstance(other, int) and not isinstance(one, bool) and not isinstance(other, bool):
        return  # a bucket holds several integers
    for mine, theirs in zip(holders(one), holders(other), strict=True):
        assert (mine == theirs) is same, (mine, theirs)
        assert len({mine: 1, theirs: 2}) == (1 if same else 2)
        assert not same or hash(mine) == hash(theirs)


@given(st.lists(constexprs, min_size=2, max_size=5))
@settings(deadline=None)
def test_a_caller_s_value_is_the_one_that_the_config_has(values):
    """A space with V=1 does not stand for a call that gives V=True."""
    space = ConfigSet([Config.of(V=value) for value in values])
    for value in (*values, True, 1, -0.0):
        (found,) = space.for_call(constexprs={"V": value}).listed
        assert written(found.as_dict()["V"]) == written(value)


def variant(value, *, in_config=False):
    signature = Signature((Parameter("V", ParameterKind.CONSTEXPR),))
    constants = () if in_config else (("V", value),)
    config = Config.of(V=value) if in_config else Config()
    return Variant("k", "f" * 64, signature, Specialization(constants=constants), config, TARGET)


@given(st.lists(constexprs, min_size=2, max_size=5), st.booleans())
@settings(deadline=None)
def test_the_order_of_calls_never_matters_to_what_the_front_end_gives(values, in_config):
    compiler, source = FakeCompiler(), SimpleNamespace(kind="fake", name="k", fingerprint="f" * 64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "select_compiler", lambda kind, target: compiler)
        for order in itertools.islice(itertools.permutations(values), 6):
            compilation._lowered.clear()
            for value in (*order, *order):
                job = compilation.lowered(source, variant(value, in_config=in_config)).job
                parameters: Any = job.parameters
                assert canonical_json(parameters["values"]) == canonical_json({"V": value_to_json(value)})


@given(constexprs, constexprs)
@example(0.0, -0.0)
@example((1,), (True,))
@example(float("nan"), float("nan"))
def test_a_variant_accepts_the_constexpr_that_it_was_compiled_for_and_no_other(compiled, called):
    call = SeenCall("k", (CallArgument("V", ValueKind.CONSTANT, value=called),), {}, (1, 0))
    assert bool(OneVariant(variant(compiled)).decision(call)) is (written(compiled) == written(called))


@given(constexprs, constexprs)
@example(0.0, -0.0)
@example((1,), (True,))
@example(float("nan"), float("nan"))
@settings(deadline=None)
def test_the_choice_in_c_tells_the_same_values_apart(one, other):
    maker = Maker()
    known, asked = maker.value(one), maker.value(other)
    same = library().silo_value_same(ctypes.byref(known), ctypes.byref(asked))
    assert bool(same & 0xFF) is (written(one) == written(other))


@given(constexprs)
def test_keys_of_the_second_schema_are_those_of_values_that_have_look_alikes(value):
    def expects(item):
        if isinstance(item, tuple):
            return any(map(expects, item))
        return isinstance(item, bool | float) or (isinstance(item, int) and item in (0, 1))

    expected = expects(value)
    assert has_look_alike(value) is expected
    assert variant(value).has_look_alike is expected
    assert variant(value, in_config=True).has_look_alike is expected


def test_artifacts_of_an_earlier_store_are_read_for_other_constexprs_alone():
    """Stands for stores that an earlier version wrote, which may hold the code of V=1 under the key of V=True."""

    def before(one):
        return digest("artifact-key/1", [one.to_json(), "cc"])

    assert variant(64).artifact_key("cc") == before(variant(64))
    assert variant("relu").artifact_key("cc") == before(variant("relu"))
    for value in (1, True, 1.0, 0, False, -0.0, (64, 1)):
        assert variant(value).artifact_key("cc") != before(variant(value))
    # A default counts where the call gives nothing; the block shape of a descriptor is no constexpr, an option neither.
    default = Signature((Parameter("V", ParameterKind.CONSTEXPR, default=True),))
    assert Variant("k", "f" * 64, default, Specialization(), Config(), TARGET).has_look_alike
    block = Signature((Parameter("x", ParameterKind.DESCRIPTOR),))
    shaped = Specialization(constants=(("x", (1, 64)),))
    assert not Variant("k", "f" * 64, block, shaped, Config.of(num_stages=1), TARGET).has_look_alike


def test_variants_of_a_bundle_that_share_code_with_a_look_alike_are_named():
    """Stands for bundles that an earlier version built."""

    def packed(value, sha256):
        blob = SimpleNamespace(sha256=sha256)
        return BundleVariant(SimpleNamespace(variant=variant(value), blob=blob, sidecars=()), "")

    def kernel(*variants):
        return BundleKernel("k", Signature(()), variants=variants)

    own = [packed(value, str(number) * 64) for number, value in enumerate((1, True, 1.0, 64, "relu"))]
    assert shared_by_look_alikes([kernel(*own)]) == ()
    assert shared_by_look_alikes([kernel(packed(64, "a" * 64), packed(128, "a" * 64), packed(2, "a" * 64))]) == ()
    (line,) = shared_by_look_alikes([kernel(packed(1, "a" * 64), packed(True, "a" * 64), packed(0, "a" * 64))])
    assert "V=1 serves V=True" in line
    assert "build the bundle again" in line
