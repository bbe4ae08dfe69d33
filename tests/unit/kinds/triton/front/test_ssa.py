"""The SSA form and the rules that the verifier holds modules to."""

import pytest
from test_ttir_parser import module_text

from silo.errors import SourceError
from silo.kinds.triton.front.ssa import Block, Dense, Operation, Type, Value
from silo.kinds.triton.front.ttir import parse_ttir
from silo.kinds.triton.front.verifier import verify


def test_a_splat_has_one_value_and_a_type_counts_its_elements():
    kind = Type("f32", (2, 3), tensor=True)
    assert kind.elements == 6
    assert Type("f32").elements == 1
    assert Dense((1.0,), kind).splat == 1.0
    assert Dense((1.0, 2.0), Type("f32", (2,), tensor=True)).splat is None


def test_operand_segments():
    values = [Value(str(index), Type("i32")) for index in range(3)]
    operation = Operation("x", values, [], {"operandSegmentSizes": (1, 0, 2)})
    assert operation.operand_segments() == ((values[0],), (), (values[1], values[2]))
    assert Operation("x", values, [], {}).operand_segments() == (tuple(values),)


def test_values_are_identities():
    assert Value("a", Type("i32")) != Value("a", Type("i32"))
    assert len({Block(), Block()}) == 2


def test_walk_is_outermost_first_in_textual_order():
    module = parse_ttir(
        module_text(
            """    %0 = "arith.constant"() <{value = true}> : () -> i1
    "scf.if"(%0) ({
      "a.inner"() : () -> ()
      "scf.yield"() : () -> ()
    }, {
    }) : (i1) -> ()
    "b.after"() : () -> ()"""
        )
    )
    names = [operation.name for operation in module.walk()]
    assert names == ["tt.func", "arith.constant", "scf.if", "a.inner", "scf.yield", "b.after", "tt.return"]


POINTERS = {"arguments": "%p: !tt.ptr<f32>, %n: i32, %b: i1", "types": "!tt.ptr<f32>, i32, i1"}


def check(body):
    verify(parse_ttir(module_text(body, **POINTERS)))


def test_a_well_formed_body_passes():
    check(
        """    %0 = "tt.make_range"() <{end = 8 : i32, start = 0 : i32}> : () -> tensor<8xi32>
    %1 = "tt.splat"(%p) : (!tt.ptr<f32>) -> tensor<8x!tt.ptr<f32>>
    %2 = "tt.addptr"(%1, %0) : (tensor<8x!tt.ptr<f32>>, tensor<8xi32>) -> tensor<8x!tt.ptr<f32>>
    %3 = "tt.load"(%2) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (tensor<8x!tt.ptr<f32>>) -> tensor<8xf32>
    "tt.store"(%2, %3) : (tensor<8x!tt.ptr<f32>>, tensor<8xf32>) -> ()"""
    )


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ('    %0 = "tt.splat"(%n) : (i32) -> tensor<8xi64>', "tensor of it"),
        ('    %0 = "tt.splat"(%n) : (i32) -> i32', "tensor of it"),
        ('    %0 = "tt.make_range"() <{end = 8 : i32, start = 0 : i32}> : () -> tensor<9xi32>', "end - start"),
        ('    %0 = "tt.load"(%p) : (!tt.ptr<f32>) -> f16', "type behind the pointer"),
        ('    %0 = "tt.load"(%p, %n) : (!tt.ptr<f32>, i32) -> f32', "the mask"),
        ('    "tt.store"(%p, %n) : (!tt.ptr<f32>, i32) -> ()', "type behind the pointer"),
        ('    %0 = "tt.addptr"(%n, %n) : (i32, i32) -> i32', "moves a pointer"),
        ('    %0 = "arith.addi"(%n, %b) : (i32, i1) -> i32', "one type"),
        ('    %0 = "arith.cmpi"(%n, %n) <{predicate = 0 : i64}> : (i32, i32) -> i32', "one i1 per element"),
        ('    %0 = "arith.select"(%n, %n, %n) : (i32, i32, i32) -> i32', "condition is i1"),
        (
            """    %0 = "tt.splat"(%n) : (i32) -> tensor<4x1xi32>
    %1 = "tt.broadcast"(%0) : (tensor<4x1xi32>) -> tensor<8x8xi32>""",
            "extents of 1 grow",
        ),
        (
            """    %0 = "tt.splat"(%n) : (i32) -> tensor<4xi32>
    %1 = "tt.expand_dims"(%0) <{axis = 2 : i32}> : (tensor<4xi32>) -> tensor<4x1xi32>""",
            "axis within the rank",
        ),
        (
            """    %0 = "tt.splat"(%n) : (i32) -> tensor<4x8xi32>
    %1 = "tt.dot"(%0, %0, %0) : (tensor<4x8xi32>, tensor<4x8xi32>, tensor<4x8xi32>) -> tensor<4x8xi32>""",
            "inner extents agree",
        ),
        (
            """    %0 = "tt.splat"(%n) : (i32) -> tensor<4x8xi32>
    %1 = "tt.reduce"(%0) <{axis = 0 : i32}> ({
    ^bb0(%x: i32, %y: i32):
      "tt.reduce.return"(%x) : (i32) -> ()
    }) : (tensor<4x8xi32>) -> tensor<4xi32>""",
            "have the shape (8,)",
        ),
        (
            """    %0 = "tt.splat"(%n) : (i32) -> tensor<4x8xi32>
    %1 = "tt.reduce"(%0) <{axis = 0 : i32}> ({
    ^bb0(%x: i32, %y: i32):
      "scf.yield"(%x) : (i32) -> ()
    }) : (tensor<4x8xi32>) -> tensor<8xi32>""",
            "ends in tt.reduce.return",
        ),
        (
            """    %0 = "scf.for"(%n, %n, %n, %n) ({
    ^bb0(%i: i32, %x: i32):
      "scf.yield"(%b) : (i1) -> ()
    }) : (i32, i32, i32, i32) -> i32""",
            "what is yielded fits",
        ),
        ('    "tt.call"(%n) <{callee = @nobody}> : (i32) -> ()', "is in the module"),
        ('    "tt.return"() : () -> ()', "stands last"),
        (
            """    "scf.if"(%b) ({
      "x.y"() : () -> ()
    }, {
    }) : (i1) -> ()""",
            "ends in a terminator",
        ),
        (
            """    "cf.cond_br"(%b)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (i1) -> ()
  ^bb1:
    %0 = "arith.constant"() <{value = 3 : i32}> : () -> i32
    "cf.br"()[^bb2] : () -> ()
  ^bb2:
    %1 = "arith.addi"(%0, %0) : (i32, i32) -> i32""",
            "not defined on every way",
        ),
        (
            """    "scf.if"(%b) ({
      %0 = "arith.constant"() <{value = 3 : i32}> : () -> i32
      "scf.yield"() : () -> ()
    }, {
      "x.y"(%1) : (i32) -> ()
      "scf.yield"() : () -> ()
    }) : (i1) -> ()
    %1 = "arith.constant"() <{value = 3 : i32}> : () -> i32""",
            "not defined on every way",
        ),
    ],
)
def test_a_broken_rule_is_named(body, rule):
    with pytest.raises(SourceError, match="malformed TTIR") as caught:
        check(body)
    assert rule in str(caught.value)
