"""Attributes, names and strings of a module that somebody else wrote: refused, or numbers and encoded strings in C."""

import re

import pytest

from fuzz.attributes import MODES, attack, emitted
from fuzz.c_tokens import strange
from fuzz.hostile import MARKER
from fuzz.texts import operation_texts, recorded_texts
from silo.errors import SourceError
from silo.kinds.triton.cpu.emit.kernel_text import PRELUDE, EmittedKernel
from silo.kinds.triton.cpu.lower.messages import c_string
from silo.kinds.triton.front.operations.operation_table import OPERATIONS, RENDERED, STRUCTURAL
from silo.kinds.triton.front.ttir import parse_ttir
from silo.kinds.triton.front.verifier import verify

TEXTS = operation_texts()


def changed(name, before, after):
    """The text of an operation with one thing exchanged."""
    text = TEXTS[name]
    assert before in text
    return text.replace(before, after)


def refusal(text):
    with pytest.raises(SourceError) as caught:
        verify(parse_ttir(text))
    return str(caught.value)


def test_every_operation_that_becomes_code_has_rules():
    assert [name for name in sorted(RENDERED | STRUCTURAL) if OPERATIONS[name].attributes is None] == []


@pytest.mark.parametrize("mode", MODES)
def test_what_triton_makes_is_taken_and_leaves_only_what_is_ours_in_the_c_text(mode):
    for name, text in {**TEXTS, **recorded_texts()}.items():
        assert strange(emitted(text, mode), MARKER) == "", name


@pytest.mark.parametrize("mode", MODES)
def test_an_attribute_that_a_pass_adds_is_not_taken_from_a_text(mode):
    """It went into the format of a print, and so into the C text, as it stood."""
    attack = 'operand = "\\22); system(\\22touch hacked\\22); printf(\\22", prefix'
    with pytest.raises(SourceError, match="'operand' is none that Triton gives it") as caught:
        emitted(changed("math.exp", "prefix", attack), mode)
    assert "tt.print" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        ("tt.make_range", "start = 8 : i32", "start = true", "start is an integer"),
        ("tt.make_range", "start = 8 : i32", "start = 4294967296 : i64", "start is an integer"),
        ("tt.make_range", "start = 8 : i32", 'start = "8"', "start is an integer"),
        ("tt.make_range", "end = 24 : i32, ", "", "it has the attribute end"),
        ("tt.get_program_id", "axis = 1 : i32", "axis = 3 : i32", "axis is an integer from 0 to 2"),
        ("tt.gather", "axis = 0 : i32", "axis = -1 : i32", "axis is an axis of its operand"),
        ("tt.print", "array<i32: 0, 1>", "array<i32: 0>", "isSigned is an array of integers"),
        ("tt.print", 'prefix = " both: "', "prefix = 3 : i32", "prefix is a string"),
        ("tt.print", '" both: "', f'"{"a" * 70000}"', "prefix is a string of at most"),
        ("tt.assert", '"so it is"', "[1 : i32]", "message is a string"),
        (
            "arith.constant",
            "dense<1.5> : tensor<16xf32>",
            "dense<7> : tensor<16xi32>",
            "a constant of the result's type",
        ),
        ("arith.constant", "dense<1.5> : tensor<16xf32>", "dense<[1.5, 2.5]> : tensor<2xf32>", "a constant of the"),
        ("arith.constant", "value = 7 : i32", "value = 7.0 : f32", "a constant of the result's type"),
        ("arith.cmpi", "predicate = 2 : i64}> : (tensor<16xi32>", "predicate = 10 : i64}> : (tensor<16xi32>", "0 to 9"),
        ("tt.load", "array<i32: 1, 1, 1>", "array<i32: 1, 0, 0>", "groups that its operands come in"),
        ("tt.load", "array<i32: 1, 1, 1>", "array<i32: 1, 3, -1>", "groups that its operands come in"),
        ("tt.load", "isVolatile = true", 'isVolatile = "yes"', "isVolatile is a flag"),
        ("tt.call", "callee = @helper", 'callee = "helper"', "callee is a symbol"),
        ("scf.for", "tt.num_stages = 3 : i32", "tt.num_stages = 3 : i32, tt.stages = 3 : i32", "'tt.stages' is none"),
        ("math.exp", "{tt.divisibility = 16 : i32}", '{tt.divisibility = "16"}', "arg_attrs is the facts"),
        ("math.exp", "{tt.divisibility = 16 : i32}", "{restrict = 1 : i32}", "arg_attrs is the facts"),
        ("math.exp", '"math.exp"', '"silo.access"', "that Silo itself adds"),
    ],
)
def test_what_triton_does_not_make_is_refused(name, before, after, expected):
    assert expected in refusal(changed(name, before, after))


def test_names_of_functions_are_numbers_in_c():
    """Two symbols that differ in a sign were one function, and letters of any script were taken as they are."""
    text = changed("tt.call", "@helper", '@"a b"').replace('"helper"', '"a b"')
    second = text[text.index('  "tt.func"() <{function_type') : text.index('  "tt.func"() <{arg_attrs')]
    call = '    %v = "tt.call"(%x) <{callee = @"a b"}> : (f32) -> f32\n'
    assert call in text
    again = call.replace("%v", "%u").replace("%x", "%v").replace('@"a b"', '@"a_b\u00e9"')
    text = text.replace(call, call + again).replace(second, second + second.replace('"a b"', '"a_b\u00e9"'))
    source = emitted(text, "reference").source
    assert sorted(set(re.findall(r"silo_function\w*", source))) == [
        "silo_function0",
        "silo_function0_frame",
        "silo_function1",
        "silo_function1_frame",
    ]


def test_functions_that_call_themselves_or_give_something_else_are_refused():
    within = '    %c = "tt.call"(%b) <{callee = @helper}> : (f32) -> f32\n    "tt.return"(%c)'
    assert "call themselves: helper" in refusal(changed("tt.call", '    "tt.return"(%b)', within))
    nothing = changed("tt.call", '"tt.return"(%b) : (f32) -> ()', '"tt.return"() : () -> ()')
    assert "gets what the function gives" in refusal(nothing)


def test_strings_reach_c_in_one_form():
    hostile = 'a"b\\c\n??/%n\x00\x1b\u00e9\ud800*/'
    literal = c_string(hostile)
    assert re.fullmatch(r'"(?:[ !#$&-\[\]-~]|\\[0-7]{3})*"', literal)
    assert not set("%?") & set(literal)
    text = changed("tt.assert", "so it is", "so\\22 it\\5C is\\0A %n ??/ */")
    assert 'so\\042 it\\134 is\\012 \\045n \\077\\077/ */"' in emitted(text, "optimized").source


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f'  printf("{MARKER}%s", 1);', "not encoded"),
        ('  printf("%n");', "not encoded"),
        (f"  {MARKER}();", "nobody of ours"),
        ("  system(0);", "nobody of ours"),
        ("  int32_t const s1 = True;", "nobody of ours"),
        ("  int32_t const s1 = 1; // 1", "neither"),
        ("#define s1 1", "neither"),
        ("#include <stdio.h>", "neither"),
        ("  s1 = 1; \\", "neither"),
        ("  s1 = 0x1pEvil;", "no number"),
        ("  s1 = \u00e9;", "neither"),
    ],
)
def test_the_judge_of_the_fuzzer_sees(line, expected):
    kernel = EmittedKernel(f"{PRELUDE}\n{line}\n", "silo_kernel_k", 0, frozenset())
    assert expected in strange(kernel, MARKER)


def test_a_sample_of_hostile_texts():
    found = [attack(seed, TEXTS, {}) for seed in range(400)]
    assert [one for one in found if one.status not in {"refused", "clean"}] == []
    assert {one.status for one in found} == {"refused", "clean"}
