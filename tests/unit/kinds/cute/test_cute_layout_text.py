"""Layouts and types in the words of the DSL's artifacts. Needs no DSL."""

import pytest

from silo.errors import CompileError
from silo.kinds.cute.launch_call import LayoutLeaf, flat, parse_layout, type_parameters


def test_layouts_of_numbers_of_what_is_not_known_and_of_coordinates():
    layout = parse_layout("((8,16),(64,1)):((64,512),(1,0))")
    assert layout.shape == ((LayoutLeaf(8), LayoutLeaf(16)), (LayoutLeaf(64), LayoutLeaf(1)))
    assert [leaf.value for leaf in flat(layout.stride)] == [64, 512, 1, 0]
    layout = parse_layout("(?,?{i64 div=8}):(?{div=8},1)")
    assert [leaf.value for leaf in (*flat(layout.shape), *flat(layout.stride))] == [None, None, None, 1]
    layout = parse_layout("(256,512,1):(1@1,2@0@1,0)")
    assert flat(layout.stride) == (LayoutLeaf(1, (1,)), LayoutLeaf(2, (0, 1)), LayoutLeaf(0))
    assert parse_layout("128:-1").stride == LayoutLeaf(-1)


@pytest.mark.parametrize("words", ["", "8", "8:", ":1", "(8:1", "8:1 ", "8:1)", "(8,):(1,)", "x:1", "8:?{", "(8,4):1"])
def test_other_words_are_an_error(words):
    with pytest.raises(CompileError, match="words that this version of Silo does not know"):
        parse_layout(words)


def test_parameters_of_types():
    atom = '!a.tma<sm_90, bf16, copy_bits = 8, tma_gbasis = <"(64,64):(1@1,1@0)">, tma_format = BF16_RN>'
    assert type_parameters(atom, "b.tma", "a.tma") == [
        *("sm_90", "bf16", "copy_bits = 8", 'tma_gbasis = <"(64,64):(1@1,1@0)">', "tma_format = BF16_RN")
    ]
    for text in ("!a.tma", "!a.tma<8", "a.tma<8>", "!c.tma<8>"):
        with pytest.raises(CompileError):
            type_parameters(text, "a.tma")
