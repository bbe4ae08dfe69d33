import math

import pytest

from silo.core.values import (
    FunctionValue,
    canonical_json,
    digest,
    dtype,
    malformed,
    parse_json,
    value_from_json,
    value_sort_key,
    value_to_json,
)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, None),
        (True, True),
        (3, 3),
        ("é", "é"),
        (1.5, {"float": "0x1.8000000000000p+0"}),
        (-0.0, {"float": "-0x0.0p+0"}),
        (math.inf, {"float": "inf"}),
        (5e-324, {"float": "0x0.0000000000001p-1022"}),
        (1 << 63, {"int": "9223372036854775808"}),
        (-(1 << 63), -(1 << 63)),
        (dtype("fp16"), {"dtype": "float16"}),
        (FunctionValue("relu", "ab"), {"function": ["relu", "ab"]}),
        ((1, (None, 2.0)), {"tuple": [1, {"tuple": [None, {"float": "0x1.0000000000000p+1"}]}]}),
        ((), {"tuple": []}),
    ],
)
def test_every_kind_has_one_form(value, data):
    assert value_to_json(value) == data
    again = value_from_json(parse_json(canonical_json(data)))
    assert again == value
    assert type(again) is type(value)
    assert repr(again) == repr(value)


def test_nan_survives():
    assert value_to_json(math.nan) == value_to_json(-math.nan) == {"float": "nan"}
    assert math.isnan(value_from_json({"float": "nan"}))


@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), b"x", 1j, (1, [2])])
def test_other_kinds_are_refused(value):
    with pytest.raises(TypeError, match="cannot be part of a key"):
        value_to_json(value)


@pytest.mark.parametrize(
    "data",
    [
        [1],
        {},
        {"float": 1},
        {"float": "one"},
        {"dtype": "no"},
        {"tuple": 3},
        {"function": ["a"]},
        {"a": 1},
        {"int": 3},
        1.5,
        {"int": "3", "float": "1"},
        {"function": [1, 2]},
        {"int": "0x10"},
        {"tuple": [1.5]},
    ],
)
def test_data_that_is_no_value_is_refused(data):
    with pytest.raises(ValueError):  # noqa: PT011  # each says something else
        value_from_json(data)


@pytest.mark.parametrize("inner", [[], {}])
def test_canonical_json_of_a_value_within_itself_is_refused(inner):
    outer = [1, {"a": inner}]
    inner.append(outer) if isinstance(inner, list) else inner.update(a=outer)
    with pytest.raises((ValueError, RecursionError)):
        canonical_json(outer)


def test_canonical_json_is_one_text():
    assert canonical_json({"b": [1, True, None], "a": "é"}) == '{"a":"é","b":[1,true,null]}'.encode()


@pytest.mark.parametrize("data", [1.0, [1.0], {"a": {"b": 0.5}}, {1: 2}, (math.nan,)])
def test_canonical_json_holds_no_floats_and_string_keys_only(data):
    with pytest.raises(TypeError, match="canonical JSON"):
        canonical_json(data)


@pytest.mark.parametrize(
    "text", [b"1.5", b"1e3", b"NaN", b"Infinity", b'{"a":1,"a":2}', b"[" * 100_000, b"", b"{", b"\xff", b"[1] x"]
)
def test_json_that_is_not_ours_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011  # each says something else
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[" * 257 + b"]" * 257, "too deeply"),
        (b'{"a":' * 257 + b"1" + b"}" * 257, "too deeply"),
        (b'["]",' * 300 + b"1" + b"]" * 300, "too deeply"),
        (b'["\\"]",' * 300 + b"1" + b"]" * 300, "too deeply"),
        (b'["\xed\xa0\x80"]', "utf-8"),
        (b'\xef\xbb\xbf["a"]', "BOM"),
        ('["a"]'.encode("utf-16"), "utf-8"),
        (b"9" * 4301, "digit"),
    ],
)
def test_limits_of_json_are_those_of_no_version_of_python(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_json(text)


def test_what_is_within_the_limits_is_read():
    deep = b"[" * 256 + b"]" * 256
    assert canonical_json(parse_json(deep)) == deep
    for text in ("[" * 300 + '"', '\\"' + "]" * 300):
        assert parse_json(canonical_json([[[text]]])) == [[[text]]]


@pytest.mark.parametrize(("count", "fits"), [(64, True), (65, False)])
def test_tuples_are_within_each_other_only_so_far(count, fits):
    data = 1
    for _ in range(count):
        data = {"tuple": [data]}
    if fits:
        assert value_to_json(value_from_json(data)) == data
    else:
        with pytest.raises(ValueError, match="not a value"):
            value_from_json(data)


def test_digest_depends_on_the_schema_and_on_nothing_but_the_data():
    assert digest("a/1", {"x": 1, "y": 2}) == digest("a/1", {"y": 2, "x": 1})
    assert digest("a/1", {"x": 1}) != digest("a/2", {"x": 1})
    assert digest("a/1", 1) != digest("a/1", True)


def test_sort_key_orders_numbers_by_size_and_mixes_kinds():
    values = [64, "b", 8, None, 2.5, "a", (2,), True, dtype("fp16")]
    ordered = sorted(values, key=value_sort_key)
    numbers = [value for value in ordered if isinstance(value, int | float) and not isinstance(value, bool)]
    assert numbers == [2.5, 8, 64]
    assert ordered.index("a") < ordered.index("b")
    values.reverse()
    assert sorted(values, key=value_sort_key) == ordered


def test_malformed_shows_the_beginning_of_the_data():
    assert str(malformed("a thing", 3)) == "not a thing: 3"
    assert len(str(malformed("a thing", "x" * 10_000))) < 300
