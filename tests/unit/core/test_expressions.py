# pyright: reportAttributeAccessIssue=false

import pytest

from silo.core.expressions import (
    INT64_MAX,
    INT64_MIN,
    MAX_DEPTH,
    MAX_STACK,
    Argument,
    Bindings,
    ConfigValue,
    Const,
    DeviceFact,
    Extent,
    Instruction,
    ItemSize,
    Op,
    Opcode,
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
from silo.errors import ExpressionError

n, block = Argument("n"), ConfigValue("BLOCK")
CALL = Bindings(
    values={"n": 1000, "flag": True, "scale": 0.5},
    shapes={"x": (6, 7)},
    strides={"x": (7, 1)},
    itemsizes={"x": 2},
    config={"BLOCK": 128, "ACT": "relu"},
    facts={"sm_count": 132},
)


@pytest.mark.parametrize(
    ("kind", "operands", "value"),
    [
        ("add", (2, 3), 5),
        ("sub", (2, 3), -1),
        ("mul", (-4, 3), -12),
        ("floordiv", (-7, 2), -4),
        ("floordiv", (7, -2), -4),
        ("mod", (-7, 3), 2),
        ("mod", (7, -3), -2),
        ("cdiv", (7, 2), 4),
        ("cdiv", (-7, 2), -3),
        ("cdiv", (7, -2), -3),
        ("cdiv", (0, 5), 0),
        ("min", (3, -3), -3),
        ("max", (3, -3), 3),
        ("neg", (5,), -5),
        ("eq", (3, 3), 1),
        ("ne", (3, 3), 0),
        ("lt", (2, 3), 1),
        ("le", (3, 3), 1),
        ("gt", (3, 3), 0),
        ("ge", (3, 3), 1),
        ("and", (5, 3), 1),
        ("and", (5, 0), 0),
        ("or", (0, 9), 1),
        ("or", (0, 0), 0),
        ("not", (0,), 1),
        ("not", (7,), 0),
        ("select", (9, 1, 2), 1),
        ("select", (0, 1, 2), 2),
        ("next_pow2", (1,), 1),
        ("next_pow2", (1025,), 2048),
        ("next_pow2", (1024,), 1024),
        ("next_pow2", (0,), 0),
        ("next_pow2", (-3,), 0),
        ("next_pow2", (1 << 62,), 1 << 62),
    ],
)
def test_operations(kind, operands, value):
    assert evaluate(Op(OpKind(kind), tuple(Const(one) for one in operands)), CALL) == value


def test_every_operation_is_tested_above():
    tested = {mark[0] for mark in test_operations.pytestmark[0].args[1]}
    assert tested == {kind.value for kind in OpKind}


@pytest.mark.parametrize(
    ("leaf", "value"),
    [
        (n, 1000),
        (Argument("flag"), 1),
        (Extent("x", 1), 7),
        (Extent("x", -2), 6),
        (Stride("x", 0), 7),
        (ItemSize("x"), 2),
        (block, 128),
        (DeviceFact("sm_count"), 132),
    ],
)
def test_leaves(leaf, value):
    assert evaluate(leaf, CALL) == value


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (Op(OpKind.ADD, (Const(INT64_MAX), Const(1))), r"add\(9223372036854775807, 1\) does not fit"),
        (Op(OpKind.NEG, (Const(INT64_MIN),)), "does not fit"),
        (Op(OpKind.FLOORDIV, (Const(INT64_MIN), Const(-1))), "does not fit"),
        (Op(OpKind.NEXT_POW2, (Const((1 << 62) + 1),)), "does not fit"),
        (Op(OpKind.MOD, (n, Const(0))), r"mod\(1000, 0\): division by zero"),
        (Argument("missing"), "the argument missing is missing"),
        (Argument("scale"), "the argument scale is 0.5; an expression needs an integer"),
        (ConfigValue("ACT"), "the config value ACT is 'relu'"),
        (Extent("x", 2), r"x.shape\[2\] is missing: the array has 2 axes"),
        (Stride("y", 0), "needs an array argument"),
    ],
)
def test_what_has_no_value(node, message):
    with pytest.raises(ExpressionError, match=message):
        evaluate(node, CALL)


def test_only_the_deciding_operand_is_evaluated():
    bad = Op(OpKind.MOD, (Const(1), Const(0)))
    assert evaluate(Op(OpKind.SELECT, (n, Const(1), bad)), CALL) == 1
    assert evaluate(Op(OpKind.AND, (Const(0), bad)), CALL) == 0
    assert evaluate(Op(OpKind.OR, (n, bad)), CALL) == 1
    with pytest.raises(ExpressionError):
        evaluate(Op(OpKind.AND, (n, bad)), CALL)


def test_constants_and_arity_are_checked():
    with pytest.raises(ExpressionError, match="64-bit"):
        Const(1 << 63)
    with pytest.raises(ExpressionError, match="select takes 3 operands, not 2"):
        Op(OpKind.SELECT, (n, n))


def test_depth_is_bounded():
    node = n
    for _ in range(MAX_DEPTH):
        node = Op(OpKind.NEG, (node,))
    assert node.depth == MAX_DEPTH
    with pytest.raises(ExpressionError, match=f"more than {MAX_DEPTH} deep"):
        Op(OpKind.NEG, (node,))


def test_make_folds_and_keeps_errors_for_later():
    assert make(OpKind.ADD, Const(2), Const(3)) == Const(5)
    assert make(OpKind.ADD, n, Const(0)) == n
    assert make(OpKind.CDIV, n, Const(1)) == n
    assert make(OpKind.SELECT, Const(1), n, block) == n
    assert make(OpKind.AND, Const(1), n) == Op(OpKind.NE, (n, Const(0)))
    assert make(OpKind.OR, Const(0), Op(OpKind.LT, (n, block))) == Op(OpKind.LT, (n, block))
    division = make(OpKind.MOD, Const(1), Const(0))
    with pytest.raises(ExpressionError):
        evaluate(division, CALL)


@pytest.mark.parametrize("rounding", ["(n + 63) // 64", "(63 + n) // 64", "(n + 64 - 1) // 64", "(64 + n - 1) // 64"])
def test_rounding_up_by_hand_becomes_cdiv(rounding):
    from silo.core.trace import trace_value

    traced = trace_value(eval(f"lambda a: {rounding.replace('n', 'a.n')}"), ["n"])
    assert traced == Op(OpKind.CDIV, (n, Const(64)))


def test_another_sum_stays_a_floor():
    for addend in (62, 64):
        node = make(OpKind.FLOORDIV, Op(OpKind.ADD, (n, Const(addend))), Const(64))
        assert node.kind is OpKind.FLOORDIV


def test_substitute_puts_in_and_folds():
    node = Op(OpKind.CDIV, (n, Op(OpKind.MUL, (block, DeviceFact("sm_count")))))
    assert substitute(node, config={"BLOCK": 64}) == Op(
        OpKind.CDIV, (n, Op(OpKind.MUL, (Const(64), DeviceFact("sm_count"))))
    )
    assert substitute(node, config={"BLOCK": 64}, facts={"sm_count": 2}) == Op(OpKind.CDIV, (n, Const(128)))
    with pytest.raises(ExpressionError, match="BLOCK is 'big'"):
        substitute(node, config={"BLOCK": "big"})


def test_leaves_come_once_in_order():
    node = Op(OpKind.ADD, (Op(OpKind.MUL, (block, n)), Op(OpKind.ADD, (n, Extent("x", 0)))))
    assert leaves(node) == (block, n, Extent("x", 0))
    assert leaves(Const(3)) == ()


@pytest.mark.parametrize(
    "data",
    [
        True,
        None,
        "n",
        {},
        {"argument": 3},
        {"argument": "n", "config": "B"},
        {"unknown": "n"},
        {"extent": ["x"]},
        {"extent": ["x", True]},
        {"stride": ["x", "0"]},
        [],
        [1, 2],
        ["pow", 1, 2],
        ["add", 1],
        ["add", 1, 2, 3],
        1 << 63,
        ["add", 1, None],
    ],
)
def test_json_refuses_what_it_never_writes(data):
    with pytest.raises(ValueError, match=r"not an expression|operands|64-bit"):
        from_json(data)


def test_json_refuses_a_tree_without_end():
    data = 1
    for _ in range(100_000):
        data = ["neg", data]
    with pytest.raises(ValueError, match="deep"):
        from_json(data)


def test_json_form():
    node = Op(OpKind.CDIV, (Op(OpKind.ADD, (n, Extent("x", -1))), block))
    assert to_json(node) == ["cdiv", ["add", {"argument": "n"}, {"extent": ["x", -1]}], {"config": "BLOCK"}]


def test_programs():
    node = Op(OpKind.ADD, (Op(OpKind.MUL, (Extent("x", 1), ItemSize("x"))), n))
    program = encode(node, {"n": 0, "x": 3})
    assert program.instructions == (
        Instruction(Opcode.EXTENT, 1, 3),
        Instruction(Opcode.ITEMSIZE, 0, 3),
        Instruction(Opcode.MUL),
        Instruction(Opcode.ARGUMENT, 0, 0),
        Instruction(Opcode.ADD),
    )
    assert program.max_stack == 2
    assert len(program.to_bytes()) == 5 * 16


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (block, "the config value BLOCK has no value"),
        (DeviceFact("sm_count"), "the device fact device.sm_count has no value"),
        (Argument("m"), "m has no slot: 'm' is not an argument; known: n"),
    ],
)
def test_programs_need_arguments_only(node, message):
    with pytest.raises(ExpressionError, match=message):
        encode(Op(OpKind.ADD, (n, node)), {"n": 0})


def test_programs_need_a_bounded_stack():
    left = right = n
    for _ in range(MAX_STACK):
        left, right = Op(OpKind.ADD, (left, n)), Op(OpKind.ADD, (n, right))
    assert encode(left, {"n": 0}).max_stack == 2
    with pytest.raises(ExpressionError, match=f"{MAX_STACK + 1} values at one time"):
        encode(right, {"n": 0})


def test_text():
    node = Op(
        OpKind.SELECT, (Op(OpKind.AND, (n, block)), Op(OpKind.CDIV, (n, block)), Op(OpKind.NEG, (Stride("x", 0),)))
    )
    assert str(node) == "select((n and BLOCK), cdiv(n, BLOCK), neg(x.stride(0)))"
