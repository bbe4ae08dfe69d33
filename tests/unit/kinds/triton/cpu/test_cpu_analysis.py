"""What the analyses say of small modules: costs, affine forms, views, what is refused."""

from __future__ import annotations

import pytest

from silo.errors import UnsupportedError
from silo.kinds.triton.cpu.analysis.affine import is_index_only, is_structurally_affine
from silo.kinds.triton.cpu.analysis.costs import recompute_cost, row_axis
from silo.kinds.triton.cpu.analysis.supported import check_supported, unsupported_operations
from silo.kinds.triton.cpu.analysis.value_properties import (
    constant_scalar,
    inner_axis,
    is_unit_reshape,
    load_parts,
    scalar_source,
)
from silo.kinds.triton.cpu.loop_ir import LoopBuffer
from silo.kinds.triton.cpu.lower.index import linear_index, remap
from silo.kinds.triton.cpu.lower.reduction import accumulation
from silo.kinds.triton.cpu.schedule.scratch_layout import Lifetimes
from silo.kinds.triton.front.ssa import Operation, Type, Value
from silo.kinds.triton.front.ttir import parse_ttir

TEXT = """"builtin.module"() ({
  "tt.func"() <{function_type = (!tt.ptr<f32>, i32) -> (), sym_name = "k", sym_visibility = "public"}> ({
  ^bb0(%arg0: !tt.ptr<f32>, %arg1: i32):
    %c = "arith.constant"() <{value = dense<3> : tensor<8xi32>}> : () -> tensor<8xi32>
    %r = "tt.make_range"() <{end = 8 : i32, start = 0 : i32}> : () -> tensor<8xi32>
    %s = "tt.splat"(%arg1) : (i32) -> tensor<8xi32>
    %m = "arith.muli"(%r, %s) : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>
    %a = "arith.addi"(%m, %c) : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>
    %q = "arith.muli"(%r, %r) : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>
    %b = "tt.splat"(%arg0) : (!tt.ptr<f32>) -> tensor<8x!tt.ptr<f32>>
    %p = "tt.addptr"(%b, %a) : (tensor<8x!tt.ptr<f32>>, tensor<8xi32>) -> tensor<8x!tt.ptr<f32>>
    %v = "tt.load"(%p) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (tensor<8x!tt.ptr<f32>>) -> tensor<8xf32>
    %e = "math.exp"(%v) : (tensor<8xf32>) -> tensor<8xf32>
    %d = "arith.addf"(%e, %e) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %t = "arith.mulf"(%d, %d) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    "tt.store"(%p, %e) : (tensor<8x!tt.ptr<f32>>, tensor<8xf32>) -> ()
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""

ROW_TEXT = """"builtin.module"() ({
  "tt.func"() <{function_type = (!tt.ptr<f32>, i32) -> (), sym_name = "k", sym_visibility = "public"}> ({
  ^bb0(%arg0: !tt.ptr<f32>, %arg1: i32):
    %r = "tt.make_range"() <{end = 8 : i32, start = 0 : i32}> : () -> tensor<8xi32>
    %s = "tt.splat"(%arg1) : (i32) -> tensor<8xi32>
    %a = "STRIDE"(%r, %s) : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>
    %b = "tt.splat"(%arg0) : (!tt.ptr<f32>) -> tensor<8x!tt.ptr<f32>>
    %p = "tt.addptr"(%b, %a) : (tensor<8x!tt.ptr<f32>>, tensor<8xi32>) -> tensor<8x!tt.ptr<f32>>
    %v = "tt.load"(%p) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (tensor<8x!tt.ptr<f32>>) -> tensor<8xf32>
    "tt.store"(%p, %v) : (tensor<8x!tt.ptr<f32>>, tensor<8xf32>) -> ()
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""


@pytest.fixture
def values():
    module = parse_ttir(TEXT)
    return {op.results[0].name.lstrip("%"): op.results[0] for op in module.walk() if op.results}


def test_affine_by_structure(values):
    affine = {name for name, value in values.items() if is_structurally_affine(value)}
    assert affine == {"c", "r", "s", "m", "a", "b", "p"}
    assert is_structurally_affine(values["q"], frozenset({values["q"]}))


def test_what_reads_memory(values):
    assert is_index_only(values["p"])
    assert is_index_only(None)
    assert not is_index_only(values["e"])


def test_uniform_values(values):
    assert scalar_source(values["s"]).type == Type("i32")
    assert scalar_source(values["r"]) is None
    assert constant_scalar(scalar_source(values["c"])) == 3
    assert load_parts(values["v"].owner) == (values["p"], None, None)


def test_costs_order_what_to_store(values):
    known = {}
    cheap, load, dear = (recompute_cost(values[name], known) for name in ("a", "v", "e"))
    assert cheap < 6 < load < dear


def test_what_is_used_twice_costs_once(values):
    exp, twice, squared = (recompute_cost(values[name], {}) for name in ("e", "d", "t"))
    assert (twice - exp, squared - exp) == (1.0, 2.0)


def test_a_load_of_successive_places_costs_little_where_rows_are_read():
    loads = ROW_TEXT.replace("STRIDE", "arith.addi"), ROW_TEXT.replace("STRIDE", "arith.muli")
    row, strided = (next(op for op in parse_ttir(text).walk() if op.name == "tt.load") for text in loads)
    assert (row_axis(row), row_axis(strided)) == (0, None)
    assert recompute_cost(row.result, {}) < 6 < recompute_cost(row.result, {}, rows=False)
    assert recompute_cost(strided.result, {}) > 6


def test_a_known_module_is_supported_and_an_unknown_operation_is_not():
    assert unsupported_operations(parse_ttir(TEXT)) == {}
    text = TEXT.replace("math.exp", "tt.mystery").replace('"tt.store"', '"tt.secret_effect"')
    with pytest.raises(UnsupportedError, match=r"(?s)2 operations.*tt\.mystery x1.*tt\.secret_effect x1"):
        check_supported(parse_ttir(text))


def view(name, before, after, **attributes):
    return Operation(name, [Value("x", Type("f32", before, tensor=True))],
                     [Value("y", Type("f32", after, tensor=True))], attributes)  # fmt: skip


VIEWS = [
    (view("tt.expand_dims", (4, 8), (4, 1, 8), axis=1), ("i", "0", "k"), ("i", "k"), 1),
    (view("tt.expand_dims", (4, 8), (4, 8, 1), axis=2), ("i", "k", "0"), ("i", "k"), None),
    (view("tt.broadcast", (4, 1), (4, 8)), ("i", "k"), ("i", "0"), None),
    (view("tt.broadcast", (1, 8), (4, 8)), ("i", "k"), ("0", "k"), 1),
    (view("tt.trans", (2, 3, 5), (5, 2, 3), order=(2, 0, 1)), ("a", "b", "c"), ("b", "c", "a"), 1),
    (view("tt.reshape", (4, 8), (1, 4, 1, 8)), ("0", "i", "0", "k"), ("i", "k"), 1),
]


@pytest.mark.parametrize(("operation", "index", "wanted", "axis"), VIEWS)
def test_views(operation, index, wanted, axis):
    assert remap(operation, index) == wanted
    assert inner_axis(operation, len(index) - 1) == axis


def test_reshapes():
    assert is_unit_reshape(VIEWS[-1][0])
    assert not is_unit_reshape(view("tt.reshape", (4, 8), (8, 4)))


def test_linear_index():
    assert linear_index(("i", "j", "k"), (2, 3, 5)) == "((i) * 3 + j) * 5 + k"
    assert linear_index(("0", "j", "0"), (1, 3, 1)) == "(j) * 1"


@pytest.mark.parametrize(
    ("name", "element", "start", "clause"),
    [
        ("arith.addf", "f16", "0", "+"),
        ("arith.maxsi", "i8", "(-127 - 1)", "max"),
        ("arith.minsi", "i64", "9223372036854775807ll", "min"),
        ("arith.minui", "i32", "(uint32_t)-1", "min"),
        ("arith.andi", "i16", "(uint32_t)-1", "&"),
        ("arith.maximumf", "f64", "-__builtin_inf()", "max"),
    ],
)
def test_accumulators_start_at_the_identity(name, element, start, clause):
    type_ = Type(element)
    how = accumulation(Operation(name, [Value("a", type_), Value("b", type_)], [Value("c", type_)], {}))
    assert (how.start, how.clause) == (start, clause)


def test_scratch_is_shared_by_what_is_never_alive_together():
    lifetimes = Lifetimes()
    a, b, c, d = (LoopBuffer(f"b{n}", "float", 16, 4) for n in range(4))
    lifetimes.touch(a)
    lifetimes.advance()
    with lifetimes.loop():
        lifetimes.touch(b)
        lifetimes.touch(a)  # read again by the next iteration, so alive until the loop ends
        lifetimes.advance()
        lifetimes.touch(c)
    lifetimes.advance()
    lifetimes.touch(d)
    assert lifetimes.assign(shared=True) == 128
    assert b.offset == c.offset != a.offset
    assert d.offset == 0
    assert lifetimes.assign(shared=False) == 256
    assert len({buffer.offset for buffer in (a, b, c, d)}) == 4


def test_buffers_used_in_one_step_do_not_share():
    lifetimes = Lifetimes()
    a, b = LoopBuffer("b0", "float", 16, 4), LoopBuffer("b1", "int8_t", 16, 1)
    lifetimes.touch(a)
    lifetimes.touch(b)
    lifetimes.assign(shared=True)
    assert a.offset != b.offset
