"""A module's text nested ten thousands deep is an error; chains of operations and calls are compiled."""

import sys

import pytest

from fuzz.attributes import MODES, emitted
from fuzz.texts import operation_texts
from silo.errors import SourceError
from silo.kinds.triton.front.ttir import parse_ttir

DEEP = 100_000
EMPTY = '"builtin.module"() ({\n}) : () -> ()'


def attribute(text):
    return '"builtin.module"() ({\n}) {a = ' + text + "} : () -> ()\n"


def place(before, after):
    return f"{EMPTY} loc({before * DEEP}unknown{after * DEEP})\n"


NESTED = {
    "modules": '"builtin.module"() ({\n' * DEEP + "}) : () -> ()\n" * DEEP,
    "lists": attribute("[" * DEEP + "]" * DEEP),
    "dictionaries": attribute("{a = " * DEEP + "1" + "}" * DEEP),
    "types": attribute("!tt.ptr<" * DEEP + "f32" + ">" * DEEP),
    "types of functions": attribute("(" * DEEP + ") -> ()" * DEEP),
    "dense values": attribute("dense<" + "[" * DEEP + "1" + "]" * DEEP + "> : tensor<1xi32>"),
    "symbols": attribute("@a" + "::@a" * DEEP),
    "places of calls": place("callsite(", " at unknown)"),
    "fused places": place("fused[", "]"),
    "named places": place('"a"(', ")"),
    "parentheses": "(" * DEEP,
}


@pytest.mark.parametrize("name", NESTED)
def test_a_text_that_is_nested_deep_is_refused(name):
    with pytest.raises(SourceError):
        parse_ttir(NESTED[name])


def chained(count):
    """The text of an operation with a chain of others before it."""
    lines = operation_texts()["arith.addi"].splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if '"arith.addi"' in line)
    links = [lines[at].replace("%v", f"%v{number}").replace("%i", f"%v{number - 1}") for number in range(1, count)]
    first, last = lines[at].replace("%v", "%v0"), lines[at].replace("%i", f"%v{count - 1}")
    return "".join([*lines[:at], first, *links, last, *lines[at + 1 :]])


def calling(count):
    """The text of an operation with functions that call each other before it."""
    text = operation_texts()["arith.addi"]
    functions = "".join(
        f'  "tt.func"() <{{function_type = () -> (), sym_name = "f{number}", sym_visibility = "private"}}> ({{\n'
        + (f'    "tt.call"() <{{callee = @f{number + 1}}}> : () -> ()\n' if number + 1 < count else "")
        + '    "tt.return"() : () -> ()\n  }) {noinline = true} : () -> ()\n'
        for number in range(count)
    )
    head, _, tail = text.partition('  "tt.func"')
    called = '    "tt.call"() <{callee = @f0}> : () -> ()\n    "tt.return"'
    return head + functions + '  "tt.func"' + tail.replace('    "tt.return"', called)


@pytest.fixture
def usual_limit():
    """Python's own limit on calls in calls: torch raises it for the whole process."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("usual_limit")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [chained, calling])
def test_a_long_chain_is_compiled(make, mode):
    """Of operations that take each other's results, and of functions that call each other."""
    assert emitted(make(20), mode).source
    assert emitted(make(1500), mode).source
