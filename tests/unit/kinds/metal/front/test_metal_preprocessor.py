"""Files of Metal kernels as authors write them: macros that make kernels, includes, literals that are joined."""

import shutil

import pytest

import silo
from silo.errors import SourceError
from silo.kinds.metal.front.parser import parse_metal
from silo.kinds.metal.front.preprocessor import makes_kernels, preprocess

INSTANCES = """
#include <metal_stdlib>
#include "parts/ops.h"
using namespace metal;

template <typename T, typename Op, int N = 1>
[[kernel, max_total_threads_per_threadgroup(512)]] void apply(
    device const T* x,
    device T* out,
    constant uint& size,
    constant const int64_t strides[2],
    uint i [[thread_position_in_grid]]) {
  if (i < size) {
    out[i] = Op()(x[i * strides[1]]);
  }
}

#define instantiate_kernel(name, func, ...) \\
  template [[host_name(name)]] [[kernel]] decltype(func<__VA_ARGS__>) func<__VA_ARGS__>;
#define instantiate(op, tname, type) instantiate_kernel("v_" #op "_" #tname, apply, type, op)
#define instantiate_types(op) instantiate(op, float32, float) instantiate(op, float16, half)

instantiate_types(Twice)
instantiate_types(Rounded) // the last
"""

OPS = """
#pragma once
#if defined(__METAL_VERSION__) && __METAL_VERSION__ >= 400
#error "not reached"
#elif 1
typedef bfloat bfloat16_t;
#endif

struct Twice {
  template <typename T> METAL_FUNC T operator()(T x) { return x + x; }
};
struct Rounded {
  template <typename T> METAL_FUNC T operator()(T x) { return T(static_cast<bfloat16_t>(static_cast<half>(x))); }
};
struct Pair {
  float a;
  constexpr Pair(float x) thread : a(x) {}
  constexpr Pair(float x) device : a(x) {}
  float first() const thread { return a; }
  float first() const threadgroup { return a; }
};
METAL_FUNC float load(const device float* x) { return x[0]; }
METAL_FUNC float load(const thread float* x) { return x[0]; }
"""


@pytest.fixture(name="file")
def file_with_include(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "ops.h").write_text(OPS)
    path = tmp_path / "apply.metal"
    path.write_text(INSTANCES)
    return path


def test_macros_make_kernels(file):
    made = silo.metal(file, kernel="v_Twice_float16", group_size=32).kernel.source
    assert [one.name for one in made.text.kernels] == [
        "v_Twice_float32",
        "v_Twice_float16",
        "v_Rounded_float32",
        "v_Rounded_float16",
    ]
    assert made.kernel.function == "apply<half, Twice>"
    assert made.kernel.most_threads == 512
    assert [(one.name, one.index, one.form) for one in made.kernel.buffers] == [
        ("x", 0, "*"),
        ("out", 1, "*"),
        ("size", 2, "&"),
        ("strides", 3, "*"),
    ]
    text = made.metal({})
    assert text.count("host_name") == 1
    assert "v_Twice_float16" in text.replace('" "', "").replace('"', "").replace(" ", "") or "Twice" in text
    assert "struct Rounded" in text


@pytest.mark.skipif(shutil.which("clang++-19") is None, reason="clang++-19 is not installed")
def test_they_run_in_the_emulator(file):
    np = pytest.importorskip("numpy")
    x = np.arange(40, dtype=np.float32) / 7
    strides = np.array([0, 1], np.int64)
    for name, wanted in (("v_Twice_float32", x + x), ("v_Rounded_float32", x)):
        out = np.zeros_like(x)
        silo.metal(file, kernel=name, group_size=32, grid=(2,))(x, out, 40, strides)
        np.testing.assert_allclose(out, wanted, rtol=0 if "Twice" in name else 2**-8)


def test_nothing_outside_of_the_folders_is_read(file, tmp_path):
    secret = tmp_path / "secret.h"
    secret.write_text("int secret;")
    inner = file.parent / "parts"
    (inner / "link.h").symlink_to(secret)
    for wanted in ("../secret.h", str(secret), "missing.h", "link.h"):
        with pytest.raises(SourceError, match=r"is not found in .*name its folder in include="):
            preprocess(f'#include "{wanted}"', "k.metal", [inner])
    assert "int secret" in preprocess('#include "secret.h"', "k.metal", [inner, tmp_path])


def test_a_text_without_need_stays_as_it_is():
    text = "#define N 4\n#ifndef M\n#define M 8\n#endif\nkernel void f(device float* x [[buffer(0)]]) { x[N] = M; }\n"
    assert not makes_kernels(text)
    assert silo.metal(text, group_size=1).kernel.source.text.text == text


def test_constants_of_a_launch_stay_names():
    text = """
#define K(T) kernel void f_##T(device T* x [[buffer(0)]]) { x[0] = M; }
#ifndef M
#define M 8
#endif
K(float)
"""
    assert "x [ 0 ] = M" in preprocess(text, "k.metal", [], {"M"})
    assert "x [ 0 ] = 8" in preprocess(text, "k.metal", [])
    with pytest.raises(SourceError, match="reads M, which a launch sets"):
        preprocess("#if M > 3\n#endif", "k.metal", [], {"M"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#define F(a, b) a##b\nF(x, 1)", "x1"),
        ("#define S(a) #a\nS(a  +  1)", '"a + 1"'),
        ("#define V(...) f(__VA_ARGS__)\nV(1, (2, 3))", "f ( 1 , ( 2 , 3 ) )"),
        ("#define V(a, ...) f(a, ##__VA_ARGS__)\nV(1)", "f ( 1 )"),
        ("#define A B\n#define B A\nA", "A"),
        ("#define F(x) x\n#define G F\nG(1)", "1"),
        ("#define F (1)\nF", "( 1 )"),
        ("#if 1 && !0 || (3 >> 1) == 2\nyes\n#else\nno\n#endif", "yes"),
        ("#ifdef X\nno\n#elif defined(Y)\nno\n#else\nyes\n#endif", "yes"),
        ("#define X\n#undef X\n#ifdef X\nno\n#endif\nyes", "yes"),
    ],
)
def test_macros_and_conditions(text, expected):
    (line,) = [one.strip() for one in preprocess(text, "k", []).splitlines() if one.strip() and not one.startswith("#")]
    assert line == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#if 1\n", "k:1: this condition has no #endif"),
        ("#endif", "k:1: #endif without #if"),
        ("#if (1\n#endif", "is not understood"),
        ("#if 1 / 0\n#endif", "is not understood"),
        ("\n#error no\n", "k:2: #error no"),
        ("#define F(a) a\nF(1, 2)", "k:2: the macro F takes 1 arguments, not 2"),
        ("#define F(a) a\nF(1", "have no end"),
        ("#define 1", "#define without a name"),
    ],
)
def test_mistakes_name_the_line(text, message):
    with pytest.raises(SourceError) as caught:
        preprocess(text, "k", [])
    assert message in str(caught.value)


def test_texts_that_grow_without_end_are_refused(tmp_path):
    (tmp_path / "loop.h").write_text('#include "loop.h"')
    with pytest.raises(SourceError, match="include each other"):
        preprocess('#include "loop.h"', "k", [tmp_path])
    doubled = "#define A0 x x x x x x x x\n" + "".join(f"#define A{i + 1} A{i} A{i} A{i} A{i}\n" for i in range(16))
    with pytest.raises(SourceError, match="expands to more than"):
        preprocess(f"{doubled}A16", "k", [])


def test_the_list_of_kernels_holds_those_that_cannot_be_launched():
    text = "kernel void k(device double* x [[buffer(0)]]) {}\nkernel void l(device double* x [[buffer(0)]]) {}"
    with pytest.raises(
        SourceError, match=r"no kernel 'm'; it has none that can be launched; 2 cannot be launched: .*k: x"
    ):
        silo.metal(text, kernel="m", group_size=1)
    assert len(parse_metal(text, "k").refused) == 2


def test_shifts_pragmas_and_pasted_names_of_macros_keep_their_meaning():
    text = (
        "#define HALF(x) x >>= 1; x = x >> 2\n"
        "#define MOST 4\n"
        "#define NAMED(n) [[host_name(#n)]] pre_ ## n\n"
        "HALF(a)\n#pragma unroll (MOST)\nNAMED(b)\n"
    )
    made = [line.split() for line in preprocess(text, "k", []).splitlines() if line.strip()]
    assert made[1:] == [
        ["a", ">>=", "1", ";", "a", "=", "a", ">>", "2"],
        ["#pragma", "unroll", "(", "4", ")"],
        ["[[", "host_name", "(", '"b"', ")", "]]", "pre_b"],
    ]
