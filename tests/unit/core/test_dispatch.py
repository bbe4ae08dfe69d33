# pyright: reportGeneralTypeIssues=false

import pytest

from silo.core.config import Config
from silo.core.dispatch import EXACT_LIMIT, DispatchRules, bucket_from_json, bucket_of, bucket_to_json, distance
from silo.core.expressions import INT64_MAX, INT64_MIN
from silo.core.values import canonical_json, dtype, parse_json

SMALL, LARGE, OTHER = Config.of(BLOCK=64), Config.of(BLOCK=1024), Config.of(BLOCK=256)


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        *[(exact, exact) for exact in range(EXACT_LIMIT + 1)],
        (17, 32),
        (32, 32),
        (33, 64),
        (1000, 1024),
        (1 << 20, 1 << 20),
        ((1 << 20) + 1, 1 << 21),
        (1 << 62, 1 << 62),
        ((1 << 62) + 1, INT64_MAX),
        (INT64_MAX, INT64_MAX),
        (-3, -3),
        (-1000, -1024),
        (INT64_MIN, -INT64_MAX),
        (True, True),
        (2.5, 2.5),
        ("relu", "relu"),
        (None, None),
        (dtype("fp16"), dtype("float16")),
    ],
)
def test_buckets(value, bucket):
    (found,) = bucket_of((value,))
    assert (found, type(found)) == (bucket, type(bucket))
    assert bucket_of((found,)) == (found,)


def test_distance_counts_octaves():
    assert distance((1024,), (4096,)) == 32
    assert distance((1024, 3), (512, 6)) == 32
    assert distance((0,), (1,)) == distance((1,), (2,)) == 16
    assert distance((12,), (16,)) == 8
    assert distance((3,), (3,)) == 0
    assert distance((16, "a"), (16, "b")) is None
    assert distance((16,), (-16,)) is None
    assert distance((1,), (True,)) is None
    assert distance((1,), (1, 1)) is None


def rules():
    return DispatchRules.of(["n"], {(64,): SMALL, (1 << 20,): LARGE}, OTHER)


@pytest.mark.parametrize(
    ("n", "config", "rule", "reason"),
    [
        (64, SMALL, (64,), "exact"),
        (50, SMALL, (64,), "exact"),
        (65, SMALL, (64,), "nearest bucket, 1 octaves away"),
        (0, SMALL, (64,), "nearest bucket, 7 octaves away"),
        (1 << 19, LARGE, (1 << 20,), "nearest bucket, 1 octaves away"),
        (-5, OTHER, None, "no rule is comparable: fallback"),
        ("x", OTHER, None, "no rule is comparable: fallback"),
    ],
)
def test_lookup(n, config, rule, reason):
    match = rules().lookup([n])
    assert (match.config, match.rule, match.reason) == (config, rule, reason)
    assert match.is_exact == (reason == "exact")


def test_ties_go_by_the_canonical_text_whatever_the_order_of_the_table():
    pairs = [((16, 64), SMALL), ((64, 16), LARGE)]
    for table in (dict(pairs), dict(reversed(pairs))):
        assert DispatchRules.of(["m", "n"], table, OTHER).lookup([32, 32]).config == SMALL


def test_no_rules_and_no_key():
    assert DispatchRules((), (), SMALL).lookup([]).config == SMALL
    assert DispatchRules.of([], {(): LARGE}, SMALL).lookup([]).config == LARGE


def test_explain_marks_the_rule_that_was_used():
    lines = rules().explain([100]).splitlines()
    assert lines[0] == "n=100 -> BLOCK=64 (nearest bucket, 1 octaves away)"
    assert [line for line in lines[1:] if line.startswith(" *")] == [" * n=64: BLOCK=64 (1 octaves away)"]
    assert rules().explain([-5]).splitlines()[-1] == " * otherwise: BLOCK=256"


def test_rules_are_checked():
    with pytest.raises(ValueError, match="one value for each of"):
        DispatchRules.of(["n"], {(1, 2): SMALL}, OTHER)
    with pytest.raises(ValueError, match="two dispatch rules have one bucket"):
        DispatchRules(("n",), (((1,), SMALL), ((1,), LARGE)), OTHER)


def test_json_round_trip():
    table = {(64, dtype("fp16")): SMALL, (128, None): LARGE, (1.5, True): OTHER}
    written = DispatchRules.of(["n", "d"], table, OTHER)
    assert DispatchRules.from_json(parse_json(canonical_json(written.to_json()))) == written
    assert bucket_from_json(bucket_to_json((3, "a", 1.5))) == (3, "a", 1.5)


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"key": "n"},
        {"key": [1]},
        {"rules": 4},
        {"rules": [[[1]]]},
        {"rules": [[1, 2]]},
        {"fallback": None},
    ],
)
def test_json_refuses_what_it_never_writes(change):
    with pytest.raises(ValueError, match="not "):
        DispatchRules.from_json({**rules().to_json(), **change})
