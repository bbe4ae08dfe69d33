"""Declarations in a text: indices by order, macros in parameters, and kernels beside others that cannot be launched."""

import pytest

import silo
from silo.errors import SourceError
from silo.kinds.metal.front.parser import TokenKind, parse_metal, tokens_of
from silo.kinds.metal.front.variant_text import metal_text


def kernel_of(text):
    (kernel,) = parse_metal(text, "k.metal").kernels
    return kernel


def test_buffers_without_indices_get_them_by_their_order():
    kernel = kernel_of(
        "kernel void k(device const float* x, device float* y, constant uint& n, uint i [[thread_position_in_grid]]) {}"
    )
    assert [(one.name, one.index) for one in kernel.buffers] == [("x", 0), ("y", 1), ("n", 2)]


def test_a_buffer_without_an_index_gets_the_lowest_that_is_free():
    text = "kernel void k(device const float* x [[buffer(1)]], device float* y, constant int z[2]) {}"
    kernel = silo.metal(text, group_size=1).kernel.source.kernel
    assert [(one.name, one.index, one.form) for one in kernel.buffers] == [("y", 0, "*"), ("x", 1, "*"), ("z", 2, "*")]


MACROS = """
#define READ device const \\
  float*
#define FIRST 3
#ifndef T
#define T half
#endif
#define BUFFER(n) [[buffer(n)]]
kernel void k(READ x [[buffer(FIRST)]], device T* y [[buffer(1)]]) { }
"""


def test_macros_in_parameters_are_what_they_stand_for():
    y, x = kernel_of(MACROS).buffers
    assert (x.name, x.type, x.index, x.const, x.form) == ("x", "float", 3, True, "*")
    assert (y.name, y.type) == ("y", "T"), "a default, which a constant of the launch may take the place of"


def test_a_macro_with_arguments_among_the_parameters():
    text = MACROS.replace("[[buffer(1)]]", "BUFFER(1)")
    kernel = silo.metal(text, group_size=1).kernel.source.kernel
    assert [(one.name, one.index) for one in kernel.buffers] == [("y", 1), ("x", 3)]
    with pytest.raises(SourceError, match=r"OWN\(...\) is a macro in the parameters"):
        silo.metal("#define OWN(T) device T*\nkernel void k(OWN(float) x) {}", group_size=1)


def test_one_kernel_that_cannot_be_launched_leaves_the_others():
    text = """
kernel void wide(device double* x [[buffer(0)]]) { }
kernel void fine(device float* x [[buffer(0)]]) { x[0] = 1; }
"""
    parsed = parse_metal(text, "k.metal")
    assert [one.name for one in parsed.kernels] == ["fine"]
    assert [name for name, _ in parsed.refused] == ["wide"]
    assert silo.metal(text, kernel="fine", group_size=1).kernel.source.name == "fine"
    with pytest.raises(SourceError, match="wide: x is a double"):
        silo.metal(text, kernel="wide", group_size=1)
    with pytest.raises(SourceError, match=r"which kernel.*fine.*wide: x is a double"):
        silo.metal(text, group_size=1)


def test_two_kernels_of_one_name_between_conditions_are_refused_with_the_reason():
    one = "kernel void k(device float* x [[buffer(0)]]) { x[0] = 1; }\n"
    with pytest.raises(SourceError, match="#if is not looked at here"):
        parse_metal(f"#ifdef A\n{one}#else\n{one}#endif\n", "k.metal")


def test_tokens_have_kinds_and_lines():
    text = '#include <metal_stdlib> // all\n#define A \\\n  1\nx[y[0]] += 1.5e-3h; "//" /* # */ # 0x1p-2 >>'
    found = tokens_of(text)
    assert [one.text for one in found if one.kind is TokenKind.DIRECTIVE] == [
        "#include <metal_stdlib> // all",
        "#define A \\\n  1",
    ]
    rest = [(one.text, one.line) for one in found[2:]]
    assert [word for word, _ in rest] == [
        *("x", "[", "y", "[", "0", "]", "]", "+=", "1.5e-3h", ";", '"//"', "#", "0x1p-2", ">", ">"),
    ]
    assert {line for _, line in rest} == {4}
    assert [one.text for one in found if one.kind is TokenKind.NUMBER] == ["0", "1.5e-3h", "0x1p-2"]


DEDUCED = """
template <int N> struct Params { float by[N]; };
template <typename T, bool twice>
[[kernel]] void scaled(device T* x, uint i [[thread_position_in_grid]]) { x[i] *= twice ? 2 : 1; }
template <typename T, int N>
[[kernel]] void summed(
    device T* x [[buffer(0)]],
    constant Params<N>& params [[buffer(1)]],
    device T* bias [[buffer(BASE + 2), function_constant(has_bias)]],
    uint i [[thread_position_in_grid]]) {}
template [[host_name("scaled")]] [[kernel]] decltype(scaled<float, (bool)1>) scaled<float, (bool)1>;
template [[host_name("summed")]] [[kernel]] void summed(
    device half* x [[buffer(0)]], constant Params<3>& params [[buffer(1)]],
    device half* bias [[buffer(4)]], uint i [[thread_position_in_grid]]);
constant bool has_bias [[function_constant(BASE + 1)]];
"""


def test_arguments_of_templates_hold_brackets_or_come_from_parameters():
    found = parse_metal("#define BASE 2\n" + DEDUCED, "k")
    assert not found.refused
    assert [one.function for one in found.kernels] == ["scaled<float, (bool)1>", "summed<half, 3>"]
    assert [(one.type, one.index) for one in found.kernels[1].buffers] == [("half", 0), ("Params<3>", 1), ("half", 4)]
    assert [one.index for one in found.constants] == [3]
    made = metal_text(found, found.kernels[1], {"has_bias": False, "BASE": 2}, {})
    assert "[[buffer(BASE + 2)]]" in made
    assert "function_constant" not in made
