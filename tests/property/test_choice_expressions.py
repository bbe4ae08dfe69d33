"""The choice in C works expressions out, folds and encodes them as Python does, and says the same where it cannot."""

import ctypes

from hypothesis import example, given, settings
from hypothesis import strategies as st

from core_choice import Error, Maker, String, library, programs
from silo.core.config import Config
from silo.core.expressions import (
    INT64_MAX,
    INT64_MIN,
    Argument,
    Bindings,
    ConfigValue,
    Const,
    DeviceFact,
    Extent,
    ItemSize,
    Op,
    OpKind,
    Stride,
    evaluate,
)
from silo.errors import ExpressionError
from silo.launch.runtime import grid_programs

NAMES = ("m", "x", "n", "D")
EDGES = [0, 1, -1, 2, 3, 15, 16, 127, 128, 1 << 31, 1 << 62, (1 << 62) + 1, INT64_MAX, INT64_MIN]
leaves = st.sampled_from(
    [
        *map(Argument, (*NAMES, "other")),
        *map(ConfigValue, ("BLOCK", "num_warps", "ODD", "gone")),
        *map(DeviceFact, ("sm_count", "gone")),
        *(Extent("x", axis) for axis in (0, 1, -1, -3)),
        Stride("x", 0),
        ItemSize("x"),
        Extent("m", 0),
    ]
)
constants = (st.sampled_from(EDGES) | st.integers(-20, 20)).map(Const)


def operations(children):
    return st.sampled_from(list(OpKind)).flatmap(
        lambda kind: st.tuples(*[children] * kind.arity).map(lambda operands: Op(kind, operands))
    )


trees = st.recursive(constants | leaves, operations, max_leaves=16)
values = st.sampled_from([*EDGES, True, False, 1.5, "relu", None, 1 << 70, (1, 2)]) | st.integers(-20, 200)
configs = st.fixed_dictionaries(
    {"BLOCK": values, "ODD": values}, optional={"num_warps": st.sampled_from([4, 8]), "D": values, "m": values}
).map(Config.of)
facts = st.fixed_dictionaries({"sm_count": st.integers(1, 200)})


def rounded_up(divisor, x):
    return [
        Op(OpKind.FLOORDIV, (Op(OpKind.ADD, (x, Const(divisor - 1))), Const(divisor))),
        Op(OpKind.FLOORDIV, (Op(OpKind.ADD, (Const(divisor - 1), x)), Const(divisor))),
        Op(OpKind.FLOORDIV, (Op(OpKind.SUB, (Op(OpKind.ADD, (x, Const(divisor))), Const(1))), Const(divisor))),
        Op(OpKind.FLOORDIV, (Op(OpKind.SUB, (Op(OpKind.ADD, (Const(divisor), x)), Const(1))), Const(divisor))),
    ]


roundings = st.tuples(st.sampled_from([1, 2, 128, 1 << 62]), leaves | constants).flatmap(
    lambda pair: st.sampled_from(rounded_up(*pair))
)


def encoded(node, special, config, known):
    try:
        return list(
            grid_programs(
                "k", [node], {name: i for i, name in enumerate(NAMES)}, {**special, **config.as_dict()}, known
            )
        )
    except ExpressionError as error:
        return str(error)


def alike(c_text, python_text):
    """An error in C is cut where it is long."""
    return c_text == python_text or (c_text.endswith("...") and python_text.startswith(c_text[:-3]))


@settings(max_examples=500, deadline=None)
@given(trees | roundings, st.fixed_dictionaries({}, optional={"D": values}), configs, facts)
def test_programs_are_the_same_byte_for_byte(node, special, config, known):
    mine, python = programs([node], NAMES, special, config, known), encoded(node, special, config, known)
    assert mine == python or (isinstance(mine, str) and isinstance(python, str) and alike(mine, python))


def test_an_expression_that_needs_too_many_values_says_so():
    node = Argument("n")
    for _ in range(40):
        node = Op(OpKind.SUB, (Argument("m"), node))
    mine, python = programs([node], NAMES, {}, Config(), {}), encoded(node, {}, Config(), {})
    assert "41 values" in str(mine)
    assert mine == python


POINTER, BOOL = ctypes.c_void_p, ctypes.c_bool
FOUND = ctypes.CFUNCTYPE(POINTER, POINTER, String)


class Axes(ctypes.Structure):
    _fields_ = [("numbers", ctypes.POINTER(ctypes.c_int64)), ("count", ctypes.c_int64)]


ALONG = ctypes.CFUNCTYPE(BOOL, POINTER, String, ctypes.POINTER(Axes))
SIZE = ctypes.CFUNCTYPE(ctypes.c_int64, POINTER, String)


class Leaves(ctypes.Structure):
    _fields_ = [
        ("context", POINTER),
        ("argument", FOUND),
        ("config", FOUND),
        ("fact", FOUND),
        ("shape", ALONG),
        ("strides", ALONG),
        ("itemsize", SIZE),
    ]


def evaluated(node, bindings):
    """What C makes of it: a number, or the error's text."""
    maker = Maker()

    def name(string):
        return ctypes.string_at(string.data, string.length).decode()

    def table(of, make):
        kept = {key: maker.keep(make(value)) for key, value in of.items()}
        return FOUND(lambda _, string: ctypes.addressof(kept[name(string)]) if name(string) in kept else None)

    def along(of):
        def find(_, string, axes):
            numbers = of.get(name(string))
            if numbers is None:
                return False
            axes[0].numbers, axes[0].count = maker.array(ctypes.c_int64, numbers), len(numbers)
            return True

        return ALONG(find)

    found = Leaves(
        None,
        table(bindings.values, maker.value),
        table(bindings.config, maker.value),
        table(bindings.facts, ctypes.c_int64),
        along(bindings.shapes),
        along(bindings.strides),
        SIZE(lambda _, string: bindings.itemsizes.get(name(string), 0)),
    )
    out, error = ctypes.c_int64(), Error()
    code = library().silo_node_evaluate(
        ctypes.byref(maker.node(node)), ctypes.byref(found), ctypes.byref(out), ctypes.byref(error)
    )
    return out.value if code == 0 else error.text.decode()


@settings(max_examples=500, deadline=None)
@given(trees, st.dictionaries(st.sampled_from(NAMES), values), configs, st.lists(st.integers(0, 99), max_size=3))
def test_values_and_errors_are_the_same(node, given_values, config, shape):
    bindings = Bindings(
        values=given_values,
        shapes={"x": shape},
        strides={"x": shape[::-1]},
        itemsizes={"x": 4},
        config=config.as_dict(),
        facts={"sm_count": 132},
    )
    try:
        expected = evaluate(node, bindings)
    except ExpressionError as error:
        expected = str(error)
    mine = evaluated(node, bindings)
    assert mine == expected or (isinstance(mine, str) and isinstance(expected, str) and alike(mine, expected))


FLOATS = st.floats() | st.sampled_from(
    [0.0, -0.0, 1e16, 1e-5, 123456789012345680.0, 5e-324, 0.1, 100.0, 1e22, 9007199254740993.0]
)


@settings(max_examples=300, deadline=None)
@example(2.0**-24)  # where neighbours lie closer below than above
@given(FLOATS | st.text() | st.tuples(st.integers(), st.booleans()) | values)
def test_a_value_is_written_as_python_writes_it(value):
    if isinstance(value, int) and not isinstance(value, bool):
        return
    expected = f"the argument n is {value!r}; an expression needs an integer there"
    if value is None:
        expected = "the argument n is missing; an expression needs an integer there"
    mine = evaluated(Argument("n"), Bindings(values={"n": value}))
    if isinstance(value, bool):
        assert mine == int(value)
    elif not isinstance(value, str) or (value.isprintable() and value.isascii()):
        assert alike(mine, expected)
