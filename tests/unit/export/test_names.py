"""Names of C and C++ made of names that may be anything."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo.core.values import dtype
from silo.export.c_names import Names, comment_text, identifier, string_literal, word_of

TEXTS = st.text(max_size=30) | st.sampled_from(["", "_", "__x", "_X", "a__b", "int", "9", "a.b", "*/", "??/", "\\"])


@given(TEXTS)
def test_every_text_leads_to_a_name_that_both_languages_take(text):
    name = identifier(text)
    assert re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name)
    assert "__" not in name
    assert identifier(name) == name


@pytest.mark.parametrize("name", ["add", "a_row", "x2", "BLOCK_M", "relu_"])
def test_names_that_serve_stay(name):
    assert identifier(name) == name


@given(st.lists(TEXTS, max_size=20))
def test_names_of_a_scope_differ(texts):
    names = Names(["queue"])
    given_ = [names.give(text) for text in texts]
    assert len({*given_, "queue"}) == len(texts) + 1


@given(TEXTS)
def test_nothing_ends_a_comment_or_a_literal(text):
    comment = comment_text(text)
    assert comment.isascii()
    assert comment.isprintable()
    assert "*/" not in comment
    assert "??" not in comment
    assert not comment.endswith("\\")
    literal = string_literal(text)
    assert re.fullmatch(r'"(?:[^"\\?]|\\[0-7]{3}|\\["\\?])*"', literal)


def test_constants_have_words():
    values = ["", None, True, -3, 1.5, dtype("float8_e5m2"), "leaky relu"]
    words = ["empty", "none", "true_", "minus_3", "n1_5", "float8_e5m2", "leaky_relu"]
    assert [identifier(word_of(value)) for value in values] == words
