"""Values, keys and readers hold for anything, and data from anywhere is read right or refused with ValueError."""
# pyright: reportCallIssue=false, reportOperatorIssue=false

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silo.core.cases import Case, CaseRecipe, Make, record
from silo.core.config import Config
from silo.core.device import DeviceModel, Target
from silo.core.dispatch import Bound, Bucket, DecisionList, DispatchRules, Step, bucket_of, distance
from silo.core.expressions import INT64_MAX, INT64_MIN
from silo.core.extents import DynamicLayout, Extents
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot, TensorMap
from silo.core.recipes import Work
from silo.core.recorded_plans import (
    ArgumentKind,
    RecordedArgument,
    RecordedForm,
    RecordedLaunch,
    RecordedPlan,
    RecordedSource,
    Source,
)
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.space import Space
from silo.core.specialization import Fact, Specialization
from silo.core.values import DTYPES, FunctionValue, canonical_json, parse_json, value_from_json, value_to_json
from silo.core.variant import Compiled, CompileJob, Variant
from silo.errors import SpaceError

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(DTYPES)
    | st.builds(FunctionValue, st.text(max_size=4), st.text(max_size=4))
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8)
integers = st.integers(INT64_MIN, INT64_MAX) | st.integers(-40, 40)


def same(left, right):
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or left.hex() == right.hex()
    return type(left) is type(right) and left == right


@settings(max_examples=300, deadline=None)
@given(values)
def test_values_round_trip_through_bytes(value):
    assert same(value_from_json(parse_json(canonical_json(value_to_json(value)))), value)


@settings(max_examples=200, deadline=None)
@given(values, values)
def test_different_values_have_different_bytes(left, right):
    equal = canonical_json(value_to_json(left)) == canonical_json(value_to_json(right))
    assert equal == same(left, right)


@settings(max_examples=300, deadline=None)
@given(integers)
def test_a_bucket_is_its_own_bucket_and_no_more_than_an_octave_up(value):
    (bucket,) = bucket_of((value,))
    assert bucket_of((bucket,)) == (bucket,)
    assert abs(bucket) >= abs(value) or bucket == -INT64_MAX
    assert abs(bucket) < 2 * max(abs(value), 1)
    assert (bucket < 0) == (value < 0)


@settings(max_examples=300, deadline=None)
@given(st.tuples(integers, integers), st.tuples(integers, integers), st.tuples(integers, integers))
def test_distance_is_a_distance(first, second, third):
    a, b, c = bucket_of(first), bucket_of(second), bucket_of(third)
    assert distance(a, a) == 0
    assert distance(a, b) == distance(b, a)
    assert (distance(a, b) == 0) == (a == b)
    legs = distance(a, b), distance(b, c), distance(a, c)
    if None not in legs:
        assert legs[2] <= legs[0] + legs[1]


tables = st.dictionaries(integers.map(lambda value: bucket_of((value,))), st.integers(1, 9), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(tables, integers)
def test_lookup_finds_the_nearest_whatever_the_order(table, value):
    configs: dict[Bucket, Config] = {bucket: Config.of(B=number) for bucket, number in table.items()}
    rules = DispatchRules.of(["n"], configs, Config.of(B=0))
    other = DispatchRules.of(["n"], dict(reversed(configs.items())), Config.of(B=0))
    match = rules.lookup([value])
    assert match == other.lookup([value])
    reachable = [d for bucket in configs if (d := distance(bucket_of([value]), bucket)) is not None]
    if match.rule is None:
        assert not reachable
    else:
        assert distance(bucket_of([value]), match.rule) == min(reachable)
        assert configs[match.rule] == match.config


axes = st.dictionaries(
    st.sampled_from(["A", "B", "num_warps"]),
    st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True),
    min_size=1,
)


@settings(max_examples=100, deadline=None)
@given(axes, st.integers(0, 12))
def test_neighbours_are_mutual_and_of_the_space(members, limit):
    def below(c):
        total = 0
        for name in members:
            total = total + c[name]
        return total <= limit

    try:
        space = Space.of(members, [below])
    except SpaceError:
        assert min(map(sum, __import__("itertools").product(*members.values()))) > limit
        return
    assert all(sum(config.as_dict().values()) <= limit for config in space.configs())
    for config in space.configs():
        for other in space.neighbours(config):
            assert other in space
            assert config in space.neighbours(other)
            pairs = zip(config.as_dict().items(), other.as_dict().items(), strict=True)
            assert sum(mine != theirs for mine, theirs in pairs) == 1


def samples():
    make = Make(lambda recipe: recipe.host())
    x, out = make.normal(4, 4, strides=(5, 1)), make.empty(3, dtype="bfloat16")
    case = Case(
        args=(x, out, 3, 0.5, make.descriptor(make.zeros(8, 4), (4, 4), padding="nan")),
        expected={"x": lambda: x.host},
        grid=lambda a: (a.n, a.x.shape[0] // 2 + 1),
        rtol=0.1,
    )
    signature = Signature((Parameter("x", ParameterKind.POINTER, DTYPES[9], Effect.READ), Parameter("n", default=1.5)))
    specialization = Specialization((("x", Fact.ALIGNED_16),), (("B", (1, None)),))
    target = Target.parse("cpu:x86-64-v3")
    config = Config.of(BLOCK=64, ACT="relu", num_warps=4)
    return {
        CaseRecipe: record(case, ["x", "out", "n", "p", "d"], "n=3"),
        Signature: signature,
        Specialization: specialization,
        Config: config,
        DeviceModel: DeviceModel("cpu", "stub", "x86-64-v3", 2, 1 << 30),
        Space: Space.of({"B": [1, 2], "num_warps": [4]}, [lambda c: c.num_warps > c.B]),
        DispatchRules: DispatchRules.of(["n"], {(4,): config, (64,): Config()}, config),
        LaunchInfo: LaunchInfo(
            "f",
            (LayoutSlot("x", AbiType.TENSORMAP), LayoutSlot("x", AbiType.I32, "shape.0")),
            registers=3,
            tensor_maps=(TensorMap("x", 3, 2, 6, (64,)), TensorMap("x", 3, 2, 6, (8, 64), axes=(0, (64, 1)))),
        ),
        Variant: Variant("k", "s", signature, specialization, config, target),
        CompileJob: CompileJob("cpu", "k", target, "text", {"a": [1]}),
        DecisionList: DecisionList((Step((Bound("n", above=2, most=64),), config), Step((), Config()))),
        Work: Work(bytes=48, flops=16),
        Extents: Extents((4, 64), (64, 1)),
        DynamicLayout: DynamicLayout.of((30, 64), (64, 1), bits=16),
        RecordedPlan: RecordedPlan(
            "step",
            ("x", "n"),
            (
                RecordedForm(
                    (
                        RecordedArgument(ArgumentKind.ARRAY, DTYPES[0], 2),
                        RecordedArgument(ArgumentKind.INTEGER),
                    ),
                    (RecordedLaunch("k", (RecordedSource("x", Source.GIVEN, "x"),), options=(("num_warps", 4),)),),
                ),
            ),
        ),
    }


SAMPLES = samples()
JUNK = [
    None,
    True,
    0,
    -1,
    1 << 70,
    "",
    "x",
    [],
    {},
    [[]],
    {"float": "nan"},
    {"float": "0x1p+99999"},
    {"dtype": "x"},
    ["add", 1],
]


def test_every_kind_with_a_reader_has_a_sample():
    import importlib
    import pkgutil

    import silo.core

    readers = set()
    for module in pkgutil.iter_modules(silo.core.__path__):
        for member in vars(importlib.import_module(f"silo.core.{module.name}")).values():
            if isinstance(member, type) and hasattr(member, "from_json"):
                readers.add(member.__name__)
    inside_others = {"Parameter", "ArrayRecipe", "ExpectedRecipe", "LayoutSlot", "TensorMap", Compiled.__name__}
    inside_others |= {"DescriptorRecipe", "StructLeaf", "Bound", "Step", "DynamicAxis"}
    inside_others |= {"RecordedArgument", "RecordedForm", "RecordedLaunch", "RecordedSource"}
    inside_others |= {"Persisted", "PersistedRow", "_Coded"}  # have no members themselves
    assert readers - inside_others == {kind.__name__ for kind in SAMPLES}


def mutate(draw, data):
    """One part of the data replaced, removed, doubled or renamed."""
    if isinstance(data, list | dict) and data and draw(st.integers(0, 3)):
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        key = draw(st.sampled_from(keys))
        copy = dict(data) if isinstance(data, dict) else list(data)
        match draw(st.integers(0, 9)):
            case 0:
                del copy[key]
            case 1 if isinstance(copy, list):
                copy.insert(key, copy[key])
            case 1:
                copy[f"{key}x"] = copy[key]
            case _:
                copy[key] = mutate(draw, copy[key])
        return copy
    return draw(st.sampled_from(JUNK))


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_data_is_refused_or_read_right(kind, data):
    original = json.loads(canonical_json(SAMPLES[kind].to_json()))
    damaged = mutate(data.draw, original)
    try:
        read = kind.from_json(damaged)
    except (ValueError, SpaceError):
        return
    again = kind.from_json(json.loads(canonical_json(read.to_json())))
    assert canonical_json(again.to_json()) == canonical_json(read.to_json())
