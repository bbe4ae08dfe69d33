"""Whatever the text, the reader gives a module or a SourceError."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from silo.errors import SourceError
from silo.kinds.triton.front.ssa_facts import argument_effects
from silo.kinds.triton.front.ttir import parse_ttir
from silo.kinds.triton.front.verifier import verify

TEXTS = [path.read_text() for path in sorted((Path(__file__).parent.parent / "data" / "ttir").glob("*.ttir"))]
PIECES = [*'()<>{}[]"%:,\n\\@\0é', "", "%0", "^bb0", "->", "= ", "0x", "-1", "loc(", "#loc", "{}", "9" * 20]
PIECES += ["tensor<", "dense<", "!tt.ptr<", "array<i32: "]


def read(text):
    try:
        module = parse_ttir(text)
        verify(module)
    except SourceError:
        return False
    argument_effects(module)
    return True


@st.composite
def mutated(draw):
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        length = draw(st.sampled_from([0, 0, 1, 1, 2, 5, 20, 200]))
        piece = draw(
            st.one_of(st.sampled_from(PIECES), st.integers(0, len(text)).map(lambda at, t=text: t[at : at + 12]))
        )
        text = text[:start] + piece + text[start + length :]
    return text


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_seeds_are_read(text):
    assert read(text)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(mutated())
def test_mutated_modules_never_crash_the_reader(text):
    read(text)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='"%^@#!()<>[]{}:=,-> \n0x1aif.tens"', max_size=200))
def test_noise_never_crashes_the_reader(text):
    read('"builtin.module"() ({' + text)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(TEXTS), st.data())
def test_a_truncated_module_is_refused(text, data):
    end = data.draw(st.integers(0, text.rindex("})") + 1))
    assert not read(text[:end])
