import random

import pytest

from silo.compile.wire import encode
from silo.core.config import Config
from silo.core.device import Target
from silo.core.launch_info import AbiType, LayoutSlot
from silo.core.signature import Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.core.variant import Variant
from silo.judging.candidate_data import (
    ArrayShape,
    CandidateData,
    CandidateError,
    CaseShape,
    LaunchData,
    VariantData,
    read_messages,
    validate,
)

TARGET = Target.parse("cpu:x86-64-v3")
CASE = CaseShape((("x", ArrayShape("float32", (32,), 4)), ("n", 32)))


def variant(*, element="float32", facts=(), constants=(), target=TARGET, config=None):
    signature = Signature(
        (
            Parameter("x", ParameterKind.POINTER, dtype(element)),
            Parameter("n", ParameterKind.INTEGER, dtype("int32")),
            Parameter("B", ParameterKind.CONSTEXPR),
        )
    )
    return Variant(
        kernel="k",
        source="ab",
        signature=signature,
        specialization=Specialization(tuple(facts), tuple(constants)),
        config=config or Config.of({"B": 16}),
        target=target,
    )


def data(one=None, *, grid=(1, 1, 1), launches=None):
    layout = (LayoutSlot("x", AbiType.POINTER), LayoutSlot("n", AbiType.I32))
    made = VariantData(one or variant(), "text", layout)
    return CandidateData("k", "triton", (made,), launches or (LaunchData(0, 0, 0, grid),))


def test_data_is_read_as_it_was_written():
    made = data(variant(facts=[("n", Fact.DIVISIBLE_16)]))
    assert CandidateData.from_json(made.to_json()) == made
    assert CaseShape.from_json(CASE.to_json()) == CASE
    assert validate(made, [CASE], 4, TARGET) == 1


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (data(variant(facts=[("x", Fact.ALIGNED_16)])), "assumes of x: aligned16"),
        (data(variant(facts=[("n", Fact.EQUAL_1)])), "assumes of n: equal1"),
        (data(variant(facts=[("other", Fact.DIVISIBLE_16)])), "assumes of other"),
        (data(variant(constants=[("n", 31)])), "has n=31, and a case has 32"),
        (data(variant(constants=[("B", 8)])), "has B=8, and its config 16"),
        (data(variant(element="float64")), "points to fp64|points to float64"),
        (data(variant(target=Target.parse("cpu:x86-64-v4"))), "sent code for cpu:x86-64-v4"),
        (data(launches=(LaunchData(1, 0, 0, (1, 1, 1)),)), "one launch for each"),
        (data(launches=(LaunchData(0, 0, 0, (1, 1, 1)),) * 2), "one launch for each"),
        (data(launches=(LaunchData(0, 1, 0, (1, 1, 1)),)), "sent no launch"),
        (data(launches=tuple(LaunchData(0, one, 0, (1, 1, 1)) for one in range(5))), "5 configs"),
    ],
)
def test_data_that_does_not_fit_the_cases_is_refused(made, says):
    with pytest.raises(CandidateError, match=says):
        validate(made, [CASE], 4, TARGET)


def test_a_case_with_other_arguments_is_refused():
    with pytest.raises(CandidateError, match="takes 2 arguments"):
        validate(data(), [CaseShape((*CASE.arguments, ("m", 1)))], 4, TARGET)
    with pytest.raises(CandidateError, match="x is a pointer; the argument is not"):
        validate(data(), [CaseShape((("x", 3), ("n", 32)))], 4, TARGET)


def test_any_json_is_data_or_is_refused():
    rng = random.Random(7)
    good = data().to_json()
    junk = [None, -1, 1 << 70, 1.5, "", "x", [], {}, [[]], True, {"x": 1}]

    def damaged(value):
        if rng.random() < 0.08:
            return rng.choice(junk)
        if isinstance(value, dict):
            return {key: damaged(one) for key, one in value.items() if rng.random() > 0.02}
        return [damaged(one) for one in value if rng.random() > 0.02] if isinstance(value, list) else value

    refused = 0
    for _ in range(2000):
        try:
            CandidateData.from_json(damaged(good))
        except CandidateError:
            refused += 1
    assert refused > 1000


def test_messages_end_at_the_first_bytes_that_are_none():
    good = encode({"outcome": "ran"}, [b"abc"])
    assert [header["outcome"] for header, _ in read_messages(good * 2)] == ["ran", "ran"]
    for tail in (b"\0\0\0\2{}", b"\xff\xff\xff\xff", good[:-1], b"\0\0\0\4nul", b"\0\0\0\2[]", b"x"):
        assert len(read_messages(good + tail)) == 1
