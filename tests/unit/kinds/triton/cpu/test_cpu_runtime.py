"""Which pieces of the C runtime an object carries."""

from __future__ import annotations

import pytest

from silo.kinds.triton.cpu import ops, runtime
from silo.kinds.triton.cpu.runtime.pieces import PIECES
from silo.kinds.triton.front.operations.operation_table import RENDERED
from silo.kinds.triton.front.ssa import Operation, Type, Value


def test_a_piece_brings_what_it_stands_on_once_and_nothing_else():
    text = runtime.text({"tanh", "exp"}, 256)
    assert text.count("float silo_exp_f32(float x)") == 1
    assert text.index("silo_bits_f32") < text.index("silo_exp_f32") < text.index("silo_tanh_f32")
    assert "silo_log_f32" not in text
    assert "silo_dot" not in text


def test_the_text_does_not_depend_on_the_order_of_the_set():
    names = sorted(PIECES)
    assert runtime.text(dict.fromkeys(names).keys(), 512) == runtime.text(dict.fromkeys(reversed(names)).keys(), 512)


def test_no_piece_includes_a_header():
    assert "#include" not in runtime.text(set(PIECES), 512)


def test_every_piece_stands_after_what_it_needs():
    order = list(PIECES)
    for name, piece in PIECES.items():
        assert all(order.index(need) < order.index(name) for need in piece.needs), name


def test_vector_width_is_stated_and_checked():
    assert "SILO_VECTOR_BYTES = 64" in runtime.text(set(), 512)
    with pytest.raises(ValueError, match="512 bits, not 64"):
        runtime.text(set(), 64)


def test_an_unknown_piece_is_an_error():
    with pytest.raises(KeyError, match="nothing"):
        runtime.text({"nothing"}, 128)


def test_pieces_of_operations_exist():
    seen: set[str] = set()
    for name in RENDERED:
        for inputs, output in ((["f32"], "f32"), (["f16", "f16"], "f16"), (["i32", "i32"], "i32"), (["f64"], "f64")):
            op = Operation(
                name, [Value("x", Type(kind)) for kind in inputs], [], {"symbol": "__nv_expf", "predicate": 1}
            )
            op.results.append(Value("r", Type(output), op))
            if not ops.refusal(op):
                seen |= ops.runtime_pieces(op)
    assert {"exp", "log", "half", "integer", "minmax", "trig", "libm"} <= seen <= set(PIECES)
