"""MLIR text into SSA, from recorded modules of both Triton versions and from small texts."""

import math
import sys
from pathlib import Path

import pytest

from silo.errors import SourceError
from silo.kinds.triton.front.mlir_text import FLOAT_FORMATS, Cursor, Locations, float_from_bits, round_to_format
from silo.kinds.triton.front.ssa import Dense, Type
from silo.kinds.triton.front.ssa_facts import argument_effects
from silo.kinds.triton.front.ttir import parse_ttir, read_attribute
from silo.kinds.triton.front.verifier import verify

DATA = Path(__file__).parents[4] / "data" / "ttir"
RECORDED = sorted(DATA.glob("*.ttir"))


def module_text(body, arguments="%arg0: i32", types="i32", attributes=""):
    return f""""builtin.module"() ({{
  "tt.func"() <{{{attributes}function_type = ({types}) -> (), sym_name = "k", sym_visibility = "public"}}> ({{
  ^bb0({arguments}):
{body}
    "tt.return"() : () -> ()
  }}) {{noinline = false}} : () -> ()
}}) : () -> ()
"""


def attribute(text):
    cursor = Cursor(text)
    value = read_attribute(cursor)
    assert cursor.skip() == len(text)
    return value


def test_there_are_recorded_modules_of_both_versions():
    assert {path.name.split(".")[0].rpartition("-")[2] for path in RECORDED} == {"36", "39"}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".ttir"))
def test_recorded_modules_parse_and_verify(path):
    text = path.read_text()
    module = parse_ttir(text)
    verify(module)
    operations = list(module.walk())
    # Every operation stands in quotes at the start of its line or behind `=`; the module itself is not walked.
    lines = [line.strip() for line in text.splitlines()]
    expected = sum(1 for line in lines if line.startswith('"') or (line.startswith("%") and ' = "' in line)) - 1
    assert len(operations) == expected
    for operation in operations:
        for value in operation.operands:
            assert operation in value.uses
        for index, value in enumerate(operation.results):
            assert value.owner is operation
            assert value.index == index


@pytest.mark.parametrize("path", [path for path in RECORDED if "located" in path.name], ids=lambda path: path.name)
def test_locations_name_the_users_line_even_for_inlined_library_functions(path):
    plain = parse_ttir(path.with_name(path.name.replace(".located", "")).read_text())
    located = parse_ttir(path.read_text())
    assert [operation.name for operation in located.walk()] == [operation.name for operation in plain.walk()]
    places = {operation.location for operation in located.walk() if operation.location}
    assert places
    assert all(place.startswith("/home/user/kernels/triton_samples.py:") for place in places)
    assert not any(operation.location for operation in plain.walk())


def test_a_matmul_in_detail():
    module = parse_ttir((DATA / "matmul-39.ttir").read_text())
    assert module.kernel == "matmul"
    assert module.entry.argument_attributes(0) == {"tt.divisibility": 16}
    assert module.entry.argument_attributes(9) == {}
    (loop,) = [operation for operation in module.walk() if operation.name == "scf.for"]
    block = loop.regions[0].blocks[0]
    assert loop.regions[0].owner is loop
    assert block.arguments[0].block is block
    assert block.arguments[0].type == Type("i32")
    assert [value.type for value in block.arguments[1:]] == [value.type for value in loop.results]
    (dot,) = [operation for operation in block.operations if operation.name == "tt.dot"]
    assert dot.attributes["inputPrecision"] == 0  # tf32
    assert dot.result.type == Type("f32", (32, 16), tensor=True)
    loads = [operation for operation in block.operations if operation.name == "tt.load"]
    assert [len(group) for group in loads[0].operand_segments()] == [1, 1, 1]
    assert loads[0].operands[0].type == Type("f16", (32, 16), tensor=True, pointer=True)
    assert loads[0].operands[0].type.elements == 512


def test_blocks_branches_and_their_operands():
    module = parse_ttir(
        module_text(
            """    %0 = "arith.constant"() <{value = true}> : () -> i1
    "cf.cond_br"(%0, %arg0, %arg0)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 1, 1>}> : (i1, i32, i32) -> ()
  ^bb1(%1: i32):  // pred: ^bb0
    "cf.br"(%1)[^bb2] : (i32) -> ()
  ^bb2(%2: i32):  // 2 preds: ^bb0, ^bb1"""
        )
    )
    verify(module)
    entry, first, second = module.entry.regions[0].blocks
    branch = entry.operations[-1]
    assert branch.successors == [first, second]
    assert branch.successor_operands(0) == branch.successor_operands(1) == (entry.arguments[0],)
    assert first.operations[0].successor_operands(0) == (first.arguments[0],)
    assert entry.operations[0].attributes["value"] is True


def test_a_value_may_be_used_in_text_before_the_block_that_defines_it():
    text = module_text(
        """    "cf.br"()[^bb2] : () -> ()
  ^bb1:
    %1 = "arith.addi"(%0, %0) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32
    "cf.br"()[^bb3] : () -> ()
  ^bb2:
    %0 = "arith.constant"() <{value = 3 : i32}> : () -> i32
    "cf.br"()[^bb1] : () -> ()
  ^bb3:"""
    )
    module = parse_ttir(text)
    verify(module)
    add = next(operation for operation in module.walk() if operation.name == "arith.addi")
    assert add.operands[0].owner is not None
    assert add.operands[0].owner.attributes["value"] == 3
    assert add.operands[0].uses == [add, add]


def test_results_in_groups_and_names_reused_in_sibling_regions():
    module = parse_ttir(
        module_text(
            """    %0 = "arith.constant"() <{value = false}> : () -> i1
    %1:2 = "scf.if"(%0) ({
      %3 = "arith.constant"() <{value = 1 : i32}> : () -> i32
      "scf.yield"(%3, %arg0) : (i32, i32) -> ()
    }, {
      %3 = "arith.constant"() <{value = 2 : i32}> : () -> i32
      "scf.yield"(%arg0, %3) : (i32, i32) -> ()
    }) : (i1) -> (i32, i32)
    %2 = "arith.addi"(%1#1, %1#0) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32"""
        )
    )
    verify(module)
    add = next(operation for operation in module.walk() if operation.name == "arith.addi")
    assert [value.index for value in add.operands] == [1, 0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3 : i32", 3),
        ("-9223372036854775808 : i64", -(1 << 63)),
        ("true", True),
        ("unit", True),
        ('"a\\22b\\\\\\0A"', 'a"b\\\n'),
        ("1.500000e+00 : f32", 1.5),
        ("1.000000e-01 : f32", 0.10000000149011612),
        ("1.000000e-01 : f64", 0.1),
        ("0xFF800000 : f32", -math.inf),
        ("0x7C00 : f16", math.inf),
        ("-0.000000e+00 : bf16", -0.0),
        ("array<i32>", ()),
        ("array<i32: 1, 0, 2>", (1, 0, 2)),
        ("array<i1: true, false>", (True, False)),
        ("[1 : i32, @f, [], {a, b.c = 2 : i8}]", (1, "@f", (), {"a": True, "b.c": 2})),
        ('@"strange (0, 1) name"::@inner', '@"strange (0, 1) name"::@inner'),
        ("#arith.overflow<none>", "#arith.overflow<none>"),
        ("#ub.poison", "#ub.poison"),
        ("(!tt.ptr<f32>, i32) -> (tensor<4xf32>, i1)", "(!tt.ptr<f32>, i32) -> (tensor<4xf32>, i1)"),
        ("tensor<4x!tt.ptr<f32>>", "tensor<4x!tt.ptr<f32>>"),
        ('loc("a":1:2)', 'loc("a":1:2)'),
    ],
)
def test_attributes(text, value):
    found = attribute(text)
    assert found == value
    assert type(found) is type(value) or isinstance(found, type(value)) or isinstance(value, dict)
    if isinstance(value, float):
        assert math.copysign(1, found) == math.copysign(1, value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("dense<7> : tensor<4xi32>", (7,)),
        ("dense<[[1, 2], [3, 4]]> : tensor<2x2xi16>", (1, 2, 3, 4)),
        ("dense<[true, false]> : tensor<2xi1>", (True, False)),
        ("dense<true> : tensor<2xi1>", (True,)),
        ("dense<[0x7FC00000, 1.0]> : tensor<2xf32>", (math.nan, 1.0)),
        ("dense<> : tensor<0xi32>", ()),
        ('dense<"0x0100FFFF"> : tensor<2xi16>', (1, -1)),
        ('dense<"0x0000803F000080FF"> : tensor<2xf32>', (1.0, -math.inf)),
        ('dense<"0x803F"> : tensor<1xbf16>', (1.0,)),
        ('dense<"0xFF"> : tensor<64xi1>', (True,)),
        ('dense<"0x05"> : tensor<3xi1>', (True, False, True)),
        ('dense<"0x010001"> : tensor<3xi1>', (True, False, True)),
    ],
)
def test_dense_constants(text, values):
    found = attribute(text)
    assert isinstance(found, Dense)
    assert len(found.values) == len(values)
    for left, right in zip(found.values, values, strict=True):
        assert left == right or (math.isnan(left) and math.isnan(right))
    assert found.splat == (found.values[0] if len(found.values) == 1 else None)


@pytest.mark.parametrize(
    ("bits", "name", "value"),
    [
        (0x3C00, "f16", 1.0),
        (0x0001, "f16", 2.0**-24),
        (0x7E, "f8E4M3FN", 448.0),
        (0x7F, "f8E4M3FN", math.nan),
        (0x7C, "f8E5M2", math.inf),
        (0x7B, "f8E5M2", 57344.0),
        (0x80, "f8E4M3FNUZ", math.nan),
        (0x7F, "f8E4M3FNUZ", 240.0),
        (0x7F, "f8E8M0FNU", 1.0),
        (0x7FF0000000000000, "f64", math.inf),
    ],
)
def test_floats_from_bits(bits, name, value):
    found = float_from_bits(bits, name)
    assert found == value or (math.isnan(found) and math.isnan(value))


def test_every_number_of_a_small_format_rounds_to_itself():
    for name, form in FLOAT_FORMATS.items():
        if form.bits <= 16:
            numbers = [float_from_bits(bits, name) for bits in range(1 << form.bits)]
            assert all(round_to_format(number, name) == number for number in numbers if math.isfinite(number)), name
    assert round_to_format(65520.0, "f16") == math.inf
    assert round_to_format(65519.0, "f16") == 65504.0
    assert round_to_format(1.7976931348623157e308, "bf16") == math.inf
    assert round_to_format(3.4028235677973366e38, "f32") == math.inf
    assert math.isnan(round_to_format(1000.0, "f8E4M3FN"))
    assert round_to_format(2.0**-25, "f16") == 0.0  # a tie goes to the even neighbour


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('    %0 = "arith.constant"() <{value = 3 : i32} : () -> i32', "line 4: expected '>'"),
        ('    %0 = "arith.addi"(%arg0, %nowhere) : (i32, i32) -> i32', "line 4: expected %nowhere to be defined"),
        ('    %0 = "arith.addi"(%arg0, %arg0) : (i32, i64) -> i32', "line 4: expected %arg0 to be used with the type"),
        ('    %0 = "arith.addi"(%arg0) : (i32, i32) -> i32', "line 4: expected 1 operand types"),
        ('    %0 = "arith.addi"(%arg0, %arg0) : (i32, i32) -> (i32, i32)', "line 4: expected 1 result types"),
        ('    %arg0 = "arith.constant"() <{value = 1 : i32}> : () -> i32', "line 4: expected a name other than %arg0"),
        ('    "cf.br"()[^bb7] : () -> ()', "line 4: expected a block ^bb7 in this region"),
        ('    %0 = "x.y"() : () -> tensor<*xf32>', "line 4: expected a static extent"),
        ('    %0 = "x.y"() : () -> tensor<?xf32>', "line 4: expected a static extent"),
        ('    %0 = "x.y"() : () -> tensor<4xf32, blocked>', "line 4: expected the layout of a tensor"),
        ('    %0 = "x.y"() : () -> vector<4xf32>', "line 4: expected a scalar, a pointer or a tensor type"),
        ('    %0 = "x.y"() <{value = dense<[1, 2]> : tensor<3xi32>}> : () -> i32', "3 elements along axis 0"),
        ('    %0 = "x.y"() <{value = dense<0> : tensor<99999999xi32>}> : () -> i32', "at most"),
        ('    %0 = "x.y"() <{value = 0xFFFFF : f16}> : () -> f16', "the bits of an f16"),
        ('    %0 = "x.y"() <{value = 1.5 : i32}> : () -> i32', "a value of type i32"),
        ("    tt.return %arg0", "line 4: expected a string"),
    ],
)
def test_errors_name_the_line_and_what_was_expected(body, expected):
    with pytest.raises(SourceError) as caught:
        parse_ttir(module_text(body))
    assert expected in str(caught.value)


@pytest.mark.parametrize("text", ["", "module {\n}", '"builtin.module"() ({\n}) : () -> ()\n', '"builtin.module"('])
def test_what_is_no_module_with_a_kernel_is_refused(text):
    with pytest.raises(SourceError, match="TTIR"):
        parse_ttir(text)


def test_two_kernels_are_refused():
    one = module_text("")
    function = one[one.index('  "tt.func"') : one.rindex("})")]
    other = function.replace('"k"', '"other"')
    with pytest.raises(SourceError, match="found k, other"):
        parse_ttir(one.replace(function, function + other))


def test_huge_numbers_are_refused():
    for text in ("tensor<" + "9" * 5000 + "xf32>", "tensor<4xi" + "9" * 5000 + ">"):
        with pytest.raises(SourceError):
            parse_ttir(module_text(f'    "x.y"() : () -> {text}'))
    with pytest.raises(SourceError):
        parse_ttir(module_text('    "x.y"() <{a = ' + "9" * 5000 + " : i32}> : () -> ()"))


def test_locations_that_refer_to_each_other_end_quickly():
    chain = "".join(f"#loc{i + 1} = loc(fused[#loc{i}, #loc{i}])\n" for i in range(100))
    text = chain + '#loc0 = loc("k.py":3:1)\n#loc500 = loc(#loc500)\n'
    locations = Locations(text)
    assert locations.resolve("#loc20") == "k.py:3"
    assert locations.resolve("#loc500") == ""
    assert locations.resolve("callsite(#loc0 at unknown)") == "k.py:3"


def test_nesting_is_bounded():
    body = '"x.y"() ({\n' * 150 + '"x.z"() : () -> ()\n' + "}) : () -> ()\n" * 150
    with pytest.raises(SourceError, match="nested"):
        parse_ttir(module_text(body))
    deep = "[" * 5000 + "]" * 5000
    with pytest.raises(SourceError):
        parse_ttir(module_text(f'    "x.y"() <{{a = {deep}}}> : () -> ()'))


def calls_within(function, *arguments):
    """Python calls of Silo's own functions."""
    calls = 0

    def note(frame, event, _):
        nonlocal calls
        calls += event == "call" and "/silo/" in frame.f_code.co_filename

    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return calls


# Locations and texts with braces are read one by one.
USUAL = [path for path in RECORDED if "located" not in path.name and "printing" not in path.name]


@pytest.mark.parametrize("path", USUAL, ids=lambda path: path.name)
def test_what_was_read_of_an_earlier_module_is_not_read_again(path):
    """Types and attributes recur in each module of a kernel, so a module like an earlier one takes few calls a line."""
    text = path.read_text()
    parse_ttir(text)
    lines = text.count("\n")
    regions = text.count("({")
    assert calls_within(parse_ttir, text) <= 4 * lines + 50 * regions
    assert calls_within(argument_effects, parse_ttir(text)) <= 2 * lines + 20 * regions
