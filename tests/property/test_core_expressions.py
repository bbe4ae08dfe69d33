"""Python and C agree on the value of every expression, and on which ones have none."""

from hypothesis import given, settings
from hypothesis import strategies as st

from core_native import run_program
from silo.core.expressions import (
    INT64_MAX,
    INT64_MIN,
    MAX_STACK,
    Argument,
    Bindings,
    ConfigValue,
    Const,
    DeviceFact,
    EvalError,
    Extent,
    ItemSize,
    Op,
    OpKind,
    Stride,
    encode,
    evaluate,
    from_json,
    leaves,
    make,
    substitute,
    to_json,
)
from silo.core.values import canonical_json, parse_json
from silo.errors import ExpressionError

EDGES = [0, 1, -1, 2, -2, 3, 7, 16, 128, 1 << 31, 1 << 32, 1 << 62, (1 << 62) + 1, INT64_MAX, INT64_MAX - 1, INT64_MIN]
integers = st.sampled_from(EDGES) | st.integers(-20, 20) | st.integers(INT64_MIN, INT64_MAX)
array_leaves = st.sampled_from(
    [Extent("x", 0), Extent("x", 1), Extent("x", -1), Stride("x", 0), Stride("x", -2), ItemSize("x")]
)
arguments = st.sampled_from([Argument("n"), Argument("m")])
call_leaves = integers.map(Const) | arguments | array_leaves


def operations(children):
    return st.sampled_from(list(OpKind)).flatmap(
        lambda kind: st.tuples(*[children] * kind.arity).map(lambda operands: Op(kind, operands))
    )


call_trees = st.recursive(call_leaves, operations, max_leaves=12)
all_trees = st.recursive(
    call_leaves | st.sampled_from([ConfigValue("BLOCK"), DeviceFact("sm_count")]), operations, max_leaves=12
)
SLOTS = {"m": 0, "x": 1, "n": 2}


def bound(n, m, shape, strides, itemsize):
    python = Bindings(values={"n": n, "m": m}, shapes={"x": shape}, strides={"x": strides}, itemsizes={"x": itemsize})
    native = [{"value": m}, {"shape": shape, "strides": strides, "itemsize": itemsize}, {"value": n}]
    return python, native


extents = st.lists(integers, min_size=2, max_size=2)
bindings = st.builds(bound, integers, integers, extents, extents, st.sampled_from([1, 2, 4, 8]))


def outcome(node, python):
    try:
        return evaluate(node, python)
    except ExpressionError as error:
        return EvalError.DIVISION if "division by zero" in str(error) else EvalError.OVERFLOW


@settings(max_examples=400, deadline=None)
@given(call_trees, bindings)
def test_c_gives_what_python_gives(node, values):
    python, native = values
    program = encode(node, SLOTS)
    assert 1 <= program.max_stack <= MAX_STACK
    error, value = run_program(program.to_bytes(), native)
    expected = outcome(node, python)
    if isinstance(expected, EvalError):
        assert error == expected
    else:
        assert (error, value) == (EvalError.OK, expected)


def rebuilt(node):
    return make(node.kind, *map(rebuilt, node.operands)) if isinstance(node, Op) else node


@settings(max_examples=300, deadline=None)
@given(call_trees, bindings)
def test_simplifying_never_changes_a_value(node, values):
    python, _ = values
    expected = outcome(node, python)
    if not isinstance(expected, EvalError):
        assert evaluate(rebuilt(node), python) == expected


@settings(max_examples=200, deadline=None)
@given(all_trees)
def test_json_round_trip(node):
    assert from_json(parse_json(canonical_json(to_json(node)))) == node


@settings(max_examples=200, deadline=None)
@given(all_trees, bindings, st.integers(1, 4096), st.integers(1, 200))
def test_substituting_is_binding_early(node, values, block, units):
    python, _ = values
    late = Bindings(
        python.values,
        python.shapes,
        python.strides,
        python.itemsizes,
        config={"BLOCK": block},
        facts={"sm_count": units},
    )
    expected = outcome(node, late)
    early = substitute(node, config={"BLOCK": block}, facts={"sm_count": units})
    assert not any(isinstance(leaf, ConfigValue | DeviceFact) for leaf in leaves(early))
    if not isinstance(expected, EvalError):
        assert evaluate(early, python) == expected
