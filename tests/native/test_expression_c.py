import random
import re
import struct

import pytest

from core_native import NATIVE, library, run_program
from silo.core.dispatch import EXACT_LIMIT, bucket_of
from silo.core.expressions import (
    INT64_MAX,
    INT64_MIN,
    MAX_STACK,
    Argument,
    Const,
    EvalError,
    Extent,
    ItemSize,
    Op,
    Opcode,
    OpKind,
    Stride,
    encode,
)

HEADER = (NATIVE / "expression.h").read_text()
SLOTS = {"n": 0, "x": 1}
DATA = [{"value": 1000}, {"shape": [6, 7], "strides": [7, 1], "itemsize": 4}]


def header_enum(prefix):
    return {name: int(value) for name, value in re.findall(rf"\b{prefix}_([A-Z0-9_]+) = (\d+)", HEADER)}


def test_opcodes_agree_with_the_header():
    assert header_enum("SILO_OP") == {one.name: one.value for one in Opcode}


def test_error_codes_agree_with_the_header():
    assert header_enum("SILO_EXPRESSION") == {one.name: one.value for one in EvalError}


def test_stack_size_agrees_with_the_header():
    assert int(re.search(r"#define SILO_EXPRESSION_STACK (\d+)", HEADER)[1]) == MAX_STACK


def run(node):
    return run_program(encode(node, SLOTS).to_bytes(), DATA)


@pytest.mark.parametrize(
    ("node", "value"),
    [
        (Const(INT64_MIN), INT64_MIN),
        (Argument("n"), 1000),
        (Extent("x", 0), 6),
        (Extent("x", -1), 7),
        (Stride("x", 0), 7),
        (ItemSize("x"), 4),
        (Op(OpKind.CDIV, (Argument("n"), Const(128))), 8),
        (Op(OpKind.CDIV, (Argument("n"), Const(-128))), -7),
        (Op(OpKind.FLOORDIV, (Const(-7), Const(2))), -4),
        (Op(OpKind.MOD, (Const(-7), Const(3))), 2),
        (Op(OpKind.MOD, (Const(INT64_MIN), Const(-1))), 0),
        (Op(OpKind.SELECT, (Const(0), Op(OpKind.MOD, (Const(1), Const(0))), Const(5))), 5),
        (Op(OpKind.AND, (Const(0), Op(OpKind.MOD, (Const(1), Const(0))))), 0),
        (Op(OpKind.OR, (Const(7), Op(OpKind.MOD, (Const(1), Const(0))))), 1),
        (Op(OpKind.AND, (Const(7), Const(9))), 1),
        (Op(OpKind.NEXT_POW2, (Const(1 << 62),)), 1 << 62),
        (Op(OpKind.NEXT_POW2, (Const(-5),)), 0),
    ],
)
def test_values(node, value):
    assert run(node) == (EvalError.OK, value)


@pytest.mark.parametrize(
    ("node", "error"),
    [
        (Op(OpKind.ADD, (Const(INT64_MAX), Const(1))), EvalError.OVERFLOW),
        (Op(OpKind.NEG, (Const(INT64_MIN),)), EvalError.OVERFLOW),
        (Op(OpKind.CDIV, (Const(INT64_MIN), Const(-1))), EvalError.OVERFLOW),
        (Op(OpKind.NEXT_POW2, (Const((1 << 62) + 1),)), EvalError.OVERFLOW),
        (Op(OpKind.CDIV, (Argument("n"), Const(0))), EvalError.DIVISION),
        (Op(OpKind.MOD, (Argument("n"), Const(0))), EvalError.DIVISION),
        (Extent("x", 2), EvalError.AXIS),
        (Extent("x", -3), EvalError.AXIS),
        (Extent("n", 0), EvalError.SLOT),
        (ItemSize("n"), EvalError.SLOT),
    ],
)
def test_errors_leave_the_result_alone(node, error):
    assert run(node) == (error, -123456789)


def test_a_slot_out_of_range_is_an_error():
    assert run_program(struct.pack("=iiq", Opcode.ARGUMENT, 2, 0), DATA)[0] == EvalError.SLOT
    assert run_program(struct.pack("=iiq", Opcode.EXTENT, -1, 0), DATA)[0] == EvalError.SLOT


@pytest.mark.parametrize(
    "program",
    [
        [],
        [(Opcode.ADD, 0, 0)],
        [(Opcode.CONST, 0, 1), (Opcode.CONST, 0, 1)],
        [(Opcode.CONST, 0, 1)] * (MAX_STACK + 1),
        [(Opcode.JUMP, -1, 0)],
        [(Opcode.JUMP, 1, 0)],
        [(Opcode.JUMP_IF_ZERO, 0, 0)],
        [(Opcode.CONST, 0, 1), (Opcode.CONST, 0, 1), (99, 0, 0)],
    ],
)
def test_what_is_no_program_is_refused(program):
    data = b"".join(struct.pack("=iiq", *one) for one in program)
    assert run_program(data, DATA)[0] == EvalError.PROGRAM


def test_random_bytes_never_leave_bounds():
    # The library traps on undefined behaviour, which would end this process.
    source = random.Random(7)
    seen = set()
    for _ in range(20000):
        program = b"".join(
            struct.pack(
                "=iiq", source.randrange(-1, 28), source.randrange(-2, 4), source.choice([0, 1, -1, 2, INT64_MIN])
            )
            for _ in range(source.randrange(1, 8))
        )
        seen.add(run_program(program, DATA)[0])
    assert seen == set(EvalError)


@pytest.mark.parametrize(
    "base", [0, 1, EXACT_LIMIT, 17, 32, 33, 1000, 1 << 32, 1 << 62, (1 << 62) + 1, INT64_MAX, INT64_MIN]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_buckets_agree(base, sign):
    for value in {max(min(sign * (base + step), INT64_MAX), INT64_MIN) for step in (-1, 0, 1)}:
        assert (library().silo_bucket(value),) == bucket_of((value,))
