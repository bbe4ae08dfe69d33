"""Reading texts in CUDA C++ without a compiler: kernels, includes, members, and the device code of a file."""

import subprocess
from pathlib import Path

import pytest

import silo
from silo.errors import SourceError
from silo.kinds.cuda_cpp.compile_log import explained
from silo.kinds.cuda_cpp.cuda_text import chosen_kernel, includes_of, kernels_of, members_of
from silo.kinds.cuda_cpp.cuda_unit import CudaText
from silo.kinds.cuda_cpp.device_extraction import device_code, device_texts
from silo.kinds.cuda_cpp.literal_places import literal_places
from silo.kinds.cuda_cpp.macro_kernels import macro_kernel
from silo.kinds.cuda_cpp.nvrtc import Nvrtc, NvrtcPlace, headers_beside
from silo.kinds.cuda_cpp.user_headers import HeaderFolders, Wanted, closed_text, explained_text
from silo.settings import override
from silo.sources.foreign_files import refuse_foreign_files

MANY = """
// __global__ void commented(int a);
/* __global__ void commented2(int a) {} */
const char *text = "__global__ void quoted(int a) {}";
#define MAKE(name) __global__ void name(int a) {}
extern "C" __global__ void __launch_bounds__(128, 2) plain(const float *__restrict__ x, float *y, int n) {}
template <class T, int N = 1'000>
static __global__ void templated(T (&unused)[N], void (*callback)(int, float), const T values[4], size_t n = 3) {}
namespace a { __global__ void __maxnreg__(64) inner(int, float named) { auto f = [](int x) { return x; }; } }
__global__ __launch_bounds__(32) void later(unsigned);
__global__ void empty(void) {}
"""


def test_kernels_have_their_names_parameters_and_lines():
    found = {one.name: one for one in kernels_of(MANY)}
    assert list(found) == ["plain", "templated", "inner", "later", "empty"]
    assert found["plain"].parameters == ("x", "y", "n")
    assert found["templated"].parameters[1:] == ("callback", "values", "n")
    assert found["templated"].is_template
    assert not found["inner"].is_template
    assert found["inner"].parameters == ("", "named")
    assert found["later"].parameters == ("",)
    assert found["empty"].parameters == ()
    assert found["plain"].line == 6


def test_a_kernel_of_a_namespace_has_its_name():
    text = """
#include <cuda_fp16.h>
namespace a { inline namespace b { struct S { int x; };
namespace { template <class T> __global__ void k(T *x) { if (x) { x[0] = 1; } } }
}
extern "C" { namespace c::d { __global__ void m(int *x) {} } }
}
__global__ void n(int *x) {}
"""
    assert [(one.name, one.scope) for one in kernels_of(text)] == [("k", "a::b"), ("m", "a::c::d"), ("n", "")]
    assert chosen_kernel(text, "k.cu", "k<float>")[0] == "a::b::k<float>"
    assert chosen_kernel(text, "k.cu", "a::k<float>")[0] == "a::k<float>"
    assert chosen_kernel(text, "k.cu", "n")[0] == "n"
    (one,) = kernels_of("namespace a {\n#if X\nvoid f() {\n#else\nvoid f(int) {\n#endif\n} }\n__global__ void k() {}")
    assert one.scope == ""


@pytest.mark.parametrize(
    ("text", "entry", "message"),
    [
        ("int x;", None, "no __global__ function"),
        ("__global__ void a() {} __global__ void b() {}", None, "entry= one of a, b"),
        ("template<class T> __global__ void a(T *x) {}", None, "a is a template"),
    ],
)
def test_a_choice_that_the_text_leaves_open_is_an_error(text, entry, message):
    with pytest.raises(SourceError, match=message):
        chosen_kernel(text, "k.cu", entry)


@pytest.mark.parametrize(
    "line",
    [
        '#include "/etc/hostname"',
        "#include </etc/hostname>",
        '  #  include "/etc/hostname"',
        '%:include "/etc/hostname"',
        '#inc\\\nlude "/etc/hostname"',
        '#/* a */include/* b */"/etc/hostname"',
        '#include_next "/etc/hostname"',
        'int a = 1\'0; const char *b = "\'/*";\n#include "/etc/hostname"\n/* */',
        '#if 0\n#include "/etc/hostname"\n#endif',
        '#include "../../../../../../etc/hostname"',
        "#include <../../../../../../etc/hostname>",
        '#include "a/../../../../../../../etc/hostname"',
        '#define FILE "/etc/hostname"\n#include FILE',
        '#define FILE(x) "/etc/hostname"\n#include FILE(1)',
        '#include "C:/boot.ini"',
        '#\u00a0include "/etc/hostname"',
        '#incl\\\f\nude "/etc/hostname"',
    ],
)
def test_a_header_outside_of_its_folder_is_refused(tmp_path, line):
    file = tmp_path / "k.cu"
    file.write_text(f"{line}\n__global__ void k() {{}}\n")
    with pytest.raises(SourceError, match=r"k\.cu:\d+: .*(absolute|leads out|macro names|not followed)"):
        silo.cuda(file, threads=1)


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "secret.h").write_text("#define X 1\n")
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "link.h").symlink_to(tmp_path / "secret.h")
    (folder / "k.cu").write_text('#include "link.h"\n__global__ void k() {}\n')
    with pytest.raises(SourceError, match=r"k\.cu:1: 'link\.h' is a link that leads out"):
        silo.cuda(folder / "k.cu", threads=1)


def test_headers_travel_with_the_text_and_their_own_headers_too(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.h").write_text('#include "b.h"\n#include "../c.h"\n')
    (tmp_path / "lib" / "b.h").write_text("#define B 1\n")
    (tmp_path / "c.h").write_text("#define C 1\n")
    text = CudaText("k.cu", '#include "lib/a.h"\n#include <cooperative_groups.h>\n')
    closed = closed_text(text, HeaderFolders.of((), tmp_path), "k.cu")
    assert [name for name, _ in closed.headers] == ["../c.h", "b.h", "lib/a.h"]


def test_two_headers_of_one_name_are_an_error(tmp_path):
    for name, content in (("a/x.h", "int a;"), ("b/x.h", "int b;"), ("a/one.h", '#include "x.h"')):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "b/two.h").write_text('#include "x.h"')
    text = CudaText("k.cu", '#include "a/one.h"\n#include "b/two.h"\n')
    with pytest.raises(SourceError, match=r"'x\.h' names two files"):
        closed_text(text, HeaderFolders.of((), tmp_path), "k.cu")


def test_a_pointer_to_an_instance_of_a_template_is_no_value():
    (found,) = kernels_of(
        "__global__ void k(Pack<float, 4> *a, const Pack<F<int>, 2> &b, Pack<float *, 4> c, int d) {}"
    )
    assert found.types == ("", "", "Pack", "int")


def test_includes_know_their_lines():
    text = '#include "a.h" // one\n\n/* #include <b.h> */\nint x;\\\n\n# include <c.h>\n'
    assert [(one.name, one.line) for one in includes_of(text)] == [("a.h", 1), ("c.h", 6)]


def test_banners_of_comments_take_no_time():
    text = ("/*" + "-" * 70 + "*/\n") * 40 + '\n/* a */ /* b\n */ #include "own.h"\n'
    assert [one.name for one in includes_of(text)] == ["own.h"]
    refuse_foreign_files(text, "k.cu")


def test_a_remark_about_includes_is_no_include():
    assert includes_of("// #include what you use\nint x;\n") == ()


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("struct P { const float *x; float *y; int n; float a[2]; };", ("x", "y", "n", "a")),
        (
            "struct alignas(16) P : Base { int a = 1, *b; void f() {} P(int x) : a(x) {} static int s; };",
            ("a", "b"),
        ),
        ("typedef struct { int a; } P;", ("a",)),
        ("struct Q { int a; };", ()),
        ("enum class P : int { A, B };", ()),
        ("enum struct P { A, B };", ()),
        ("struct P;\nstruct P { unsigned a; };", ("a",)),
    ],
)
def test_members_of_a_struct(text, members):
    assert members_of(text, "P") == members


HOST = """#include <stdio.h>
#include "own.h"
struct P { int a; P() : a{1} {} P(float); int (*f)(int);
 __device__ P(int x) : a{x} {} int host() { return a; } virtual int v() { return 1; } };
__device__ float helper(float x) { return x; }
static void check(int x) {
  if (x) { printf("}"); }
}
template <class T> T cdiv(T a, T b) { return (a + b - 1) / b; }
constexpr int four() { return 4; }
cudaDeviceProp prop;
const int N = 4;
enum E { A, B };
using F = float (*)(float);
#ifdef X
int other() { return 1; }
#endif
namespace n { __global__ void inner(P p) {} int gone() { return 1; } }
extern "C" { __global__ void c(int *x) { x[0] = N; } }
__global__ void k(float *x) { x[0] = helper(x[1]); }
int main() {
#if 1
  k<<<1, 1>>>(nullptr);
#endif
}
#define HD __host__ __device__
#define BOTH HD
BOTH int by_macro() { return 1; }
#define MAKE(name) __global__ void name(int *x) { x[0] = 1; }
MAKE(made_by_macro);
#define INSTANCE(T) \\
  template __global__ void instance<T>(T *);
INSTANCE(short)
template <class T> void launch(T *x) {}
template void launch<float>(float *x);
bool operator==(P a, P b) { return true; }
struct ALIGNED(16) Aligned { float x[4]; };
template <class T> struct Tagged { T x = {}; T y{3}; };
int past_the_operator() { return 1; }
"""


def test_device_code_keeps_its_lines_and_loses_host_functions():
    kept = device_code(HOST)
    assert kept.count("\n") == HOST.count("\n")
    for gone in (
        "check",
        "printf",
        "cdiv",
        "prop",
        "other",
        "gone",
        "main",
        "host()",
        "a{1}",
        "P(float)",
        "launch",
        "operator",
    ):
        assert gone not in kept, gone
    assert "past_the_operator" not in kept
    for own in (
        *(
            "struct P",
            "int (*f)(int);",
            "__device__ P(int x) : a{x} {}",
            "virtual int v() { return 1; }",
            "helper",
            "four",
        ),
        *("const int N", "enum E", "using F", "inner", 'extern "C"', "int by_macro() {", "MAKE(made_by_macro);"),
        *("struct ALIGNED(16) Aligned { float x[4]; };", "T x = {}; T y{3};"),
    ):
        assert own in kept, own
    assert kept.splitlines()[19].startswith("__global__ void k")
    assert kept.count("#if") == kept.count("#endif") == 2


NEEDED = """#include "own.h"
class Exception : public Base { std::string text; };
#define THROW(x) throw Exception(x)
#define SIZE (Sizes::small)
struct Sizes { enum { small = 4 }; };
struct Vector { float x; };
__device__ Vector operator+(Vector a, Vector b) { return {a.x + b.x}; }
__device__ Unknown operator+(Exception a, Exception b);
static_assert(sizeof(Exception) == 1);
static_assert(sizeof(Vector) == 4);
extern struct cudaGraphicsResource *resource;
typedef struct { int a; } Tagged;
typedef unsigned long long word;
template <class T> struct Traits { using type = T; };
template <> struct Traits<Tagged> { using type = word; };
__device__ int used(int x) { return x; }
__device__ int used(float x) { return x; }
__device__ int unused(Exception x) { return x; }
__global__ void other(Exception *x) {}
template <class T> __global__ void k(T *x, Vector *v) { x[0] = used(SIZE) + from_header(1); v[0] = v[1] + v[2]; }
"""


def test_declarations_that_the_entry_does_not_need_go():
    header = "struct Own { int a; };\n__device__ int from_header(int x) { Own o; return x; }\n__device__ Bad bad();\n"
    kept, headers = device_texts(NEEDED, {"own.h": header}, ("k", "Traits", "Tagged"), "k")
    assert kept.count("\n") == NEEDED.count("\n")
    for gone in ("class Exception", "Unknown operator+", "sizeof(Exception)", "resource", "unused", "other"):
        assert gone not in kept, gone
    for own in (
        *(
            "#define THROW",
            "struct Sizes",
            "Vector operator+",
            "sizeof(Vector)",
            "} Tagged;",
            "word;",
            "struct Traits {",
        ),
        *("Traits<Tagged>", "used(int x)", "used(float x)"),
    ):
        assert own in kept, own
    assert headers == {"own.h": header.replace("__device__ Bad bad();", "")}
    every, _ = device_texts(NEEDED, {}, (), "made_by_a_macro")
    assert "other" in every


def test_host_prototypes_and_names_of_headers_that_were_left_out_go():
    text = """
namespace own { struct S { int x; }; }
using at::Half;
using phalf = at::Half;
using own::S;
using sums = own::S;
NORETURN FORMAT(3, 4)
API void stop(const char *file, int line, const char *text, ...);
struct S *made(int n);
__device__ float scaled(const float *x);
const float LIMIT = 2;
#define CHECK(x) if (!(x)) stop("f", 1, "x")
__global__ void k(const float *x, Half *h, S s, sums t) { CHECK(x); scaled(x); }
"""
    made, _ = device_texts(text, {}, (), "k")
    assert "at::Half" not in made
    assert "API void stop" not in made
    for stays in ("using own::S;", "using sums = own::S;", "float scaled(const float *x);"):
        assert stays in made
    assert made.count("\n") == text.count("\n")


MADE = """
#define KERNEL(T, OUT, NAME, FUNC) \\
extern "C" __global__ void NAME( \\
    const size_t numel, \\
    const T *x, OUT *out) { \\
  size_t i = threadIdx.x; if (i < numel) { T v = x[i]; out[i] = FUNC; } \\
}
#define SAME(T, NAME, FUNC) KERNEL(T, T, NAME, FUNC)
#define SUFFIX(T) SAME(T, half_of_##T, (v / 2))
"""


def test_a_kernel_that_a_macro_makes_has_its_parameters(tmp_path):
    (tmp_path / "made.h").write_text(MADE)
    text = '#include "made.h"\nKERNEL(float, int, ceiled, int(ceilf(v)))\nSAME(int, twice, (v + v))\n  SUFFIX(float)\n'
    for entry, line in (("ceiled", 2), ("twice", 3), ("half_of_float", 4)):
        kernel = macro_kernel((text, MADE), entry)
        assert (kernel.name, kernel.parameters, kernel.line) == (entry, ("numel", "x", "out"), line)
        source = silo.cuda(text, entry=entry, threads=32, include=[tmp_path]).kernel.source
        assert [one.name for one in source.declared] == ["numel", "x", "out"]
    assert macro_kernel((text, MADE), "SAME") is None
    assert macro_kernel(("#define A(x) A(x) A(x) __global__\nA(A(A(1)))",), "k") is None
    with pytest.raises(SourceError, match="no __global__ function 'absent'"):
        silo.cuda(text, entry="absent", threads=32, include=[tmp_path])


def test_declarations_that_a_macro_names_by_joining_words_stay():
    text = """
template <class T> __device__ void load_q2_K(T *x) { x[0] = 1; }
template <class T> __device__ void load_q4(T *x) { x[0] = 2; }
__device__ void other(int *x) { host(); }
#define MAKE(q) __global__ void run_##q(float *x) { load_##q<float>(x); }
MAKE(q2_K)
__global__ void k(float *x) { x[0] = FLT_MIN; }
"""
    made, _ = device_texts(text, {}, (), "run_q2_K")
    assert "void load_q2_K" in made
    assert "void other" not in made
    closed = closed_text(CudaText("k.cu", text, ()), HeaderFolders(None, ()), "k.cu", Wanted("k"))
    assert "#define FLT_MIN" in dict(closed.headers)["silo/nvcc_names.h"]


def test_headers_of_the_host_are_short_and_nvccs_names_are_there(tmp_path):
    (tmp_path / "k.cu").write_bytes(
        b"// caf\xe9\n#include <cstdint>\n#include <vector>\n#include <cub/cub.cuh>\n#include <mma.h>\n"
        b"__global__ void k(uint *x, float) { using R = cub::BlockAdjacentDifference<int, 32>; }\n"
    )
    source = silo.cuda(tmp_path / "k.cu", threads=1, device_only=True).kernel.source
    headers = dict(source.text.headers)
    assert source.signature.names == ("x", "arg1")
    assert "typedef unsigned int uint;" in headers["silo/nvcc_names.h"]
    assert headers["cstdint"] == "#pragma once\n"
    assert headers["cub/cub.cuh"].splitlines()[1:] == ["#include <cub/block/block_adjacent_difference.cuh>"]
    assert "mma.h" not in headers
    said = explained_text('k.cu(6): error: identifier "thing" is undefined\n', "k", "k", source.text)
    assert "These headers were left out, because no folder has them: vector. If one of them declares thing" in said
    (tmp_path / "k.cu").write_bytes(b'__global__ void k(int *x) { const char *s = "\xe9"; }\n')
    with pytest.raises(SourceError, match="cannot be read"):
        silo.cuda(tmp_path / "k.cu", threads=1)


def test_the_first_cause_comes_first_with_its_line():
    log = (
        'k.cu(3): warning #177-D: variable "a" was declared but never referenced\n    int a;\n        ^\n\n'
        'k.cu(7): error: identifier "y" is undefined\n    x[0] = y;\n           ^\n\n'
        'k.cu(9): error: expected a ";"\n    }\n    ^\n\n2 errors detected in the compilation of "k.cu".\n'
    )
    said = explained(log, "k (k.cu:5)", "k", device_only=False)
    assert said.splitlines()[0] == 'k (k.cu:5): k.cu:7: identifier "y" is undefined'
    assert "warning" not in said
    assert "detected in" not in said
    follows = (
        'k.cu(3): error: attribute "__global__" does not apply here\n  __global__ void k(Node *x) {}\n  ^\n\n'
        'k.cu(3): error: identifier "Node" is undefined\n  __global__ void k(Node *x) {}\n                    ^\n'
    )
    assert explained(follows, "k", "k", device_only=True).startswith('k: k.cu:3: identifier "Node" is undefined')


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ('k.cu(1): catastrophic error: cannot open source file "stdint.h"\n', "<cuda/std/cstdint>"),
        ('k.cu(1): catastrophic error: cannot open source file "cuda_runtime.h"\n', "leave it out"),
        ('k.cu(1): catastrophic error: cannot open source file "mine.h"\n', "include="),
        (
            'k.cu(1): error: identifier "uint" is undefined\n',
            "nvcc takes uint from the host's headers; device_only=True",
        ),
        ('__nv_name_map(2): error: identifier "nope" is undefined\n', "names no kernel"),
        (
            "k.cu(2): error: A function without execution space annotations (__host__) is a host function\n",
            "device_only=True",
        ),
    ],
)
def test_a_message_names_the_cure(log, words):
    assert words in explained(log, "k", "k", device_only=False)


def test_definition_needs_no_compiler(tmp_path):
    with override(home=tmp_path, nvrtc=str(tmp_path / "absent.so")):
        made = silo.cuda("__global__ void k(float *x, int n) {}", threads=64, grid=(1,))
        assert made.kernel.source.signature.names == ("x", "n")


@pytest.mark.parametrize(
    "flag", ["-I/etc", "-DX=1", "--pre-include=/etc/passwd", "-dlto", "--use-bundled-headers=/tmp", "-G"]
)
def test_flags_that_read_files_or_leave_cubins_are_refused(flag):
    with pytest.raises(SourceError, match=r"option|constants="):
        silo.cuda("__global__ void k() {}", threads=1, flags=[flag])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"entry": "nope"}, "no __global__ function 'nope'; it has k"),
        ({"signature": {"z": "out"}}, "names z, and the parameters are x, n"),
        ({"signature": {"x": "sideways"}}, "an effect"),
        ({"constants": {"n": 1}}, "both a parameter and a constant"),
        ({"constants": {"__CUDA_ARCH__": 1}}, "cannot be a macro"),
        ({"include": ["/nonexistent"]}, "is not a folder"),
        ({"constant_memory": {"w": [1]}}, "no __constant__ variable 'w'"),
    ],
)
def test_definitions_that_cannot_be(options, message):
    with pytest.raises(SourceError, match=message):
        silo.cuda("__global__ void k(float *x, int n) {}", threads=1, **options)


HEADERS = ("nv/target", "cuda_fp16.h", "crt/mma.h")


@pytest.mark.parametrize("has", [(), HEADERS[:1], HEADERS[1:2], HEADERS[:2], HEADERS[1:], HEADERS])
def test_headers_that_a_wheel_lacks_are_a_toolkits(tmp_path, has):
    wheel, toolkit = tmp_path / "cu13", tmp_path / "cuda"
    (wheel / "lib").mkdir(parents=True)
    for folder, names in (
        (wheel / "include", ("nvrtc.h", *has)),
        (toolkit / "include", ("cuda_fp16.h", "crt/mma.h", "cccl/nv/target")),
    ):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    found = headers_beside(wheel / "lib" / "libnvrtc.so.13", [str(tmp_path / "none"), str(toolkit)])
    cccl = () if "nv/target" in has else (toolkit / "include" / "cccl",)
    rest = () if {"cuda_fp16.h", "crt/mma.h"} <= {*has} else (toolkit / "include",)
    assert found == tuple(map(str, (wheel / "include", *cccl, *rest)))


@pytest.mark.parametrize(
    "text", ['#embed "/etc/hostname"', '#import "/etc/hostname"', 'int a;\r#include "/etc/hostname"']
)
def test_other_ways_to_read_a_file_are_refused(text):
    with pytest.raises(SourceError):
        closed_text(CudaText("k.cu", text + "\n__global__ void k() {}", ()), HeaderFolders(None, ()), "k.cu")


JOIN = "#define J(a, b) a##b\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (JOIN + '#if J(__has_, include)("/etc/x")\n#endif', "__has_ and include may be joined to __has_include"),
        (
            JOIN + "char c = J(__TI, ME__)[0];",
            "__TI and ME__ may be joined to __TIME__, which differs by machine or time",
        ),
        ("%:define J(a, b) a%:%:b\nchar c = J(__DA, TE__)[0];", "may be joined to __DATE__"),
        (JOIN + "#define A __TIME\n#define B STA\nchar c = J(A, J(B, MP__))[0];", "may be joined to __TIMESTAMP__"),
        ('_Pragma("GCC dependency \\"/etc/x\\"")', r"k\.cu:1: the pragma GCC dependency"),
        ('\n#pragma GCC /* */ \\\n dependency "/etc/x"', r"k\.cu:2: the pragma GCC dependency"),
        ('%:include "/etc/x"', "absolute path"),
        ('#include_next "x.h"', "#include_next is not followed"),
        ('??=include "/etc/x"', "trigraph"),
    ],
)
def test_no_word_makes_the_code_depend_on_the_machine(text, message):
    with pytest.raises(SourceError, match=message):
        closed_text(CudaText("k.cu", text + "\n__global__ void k() {}", ()), HeaderFolders(None, ()), "k.cu")


def test_words_may_be_joined_across_a_header_and_harmless_ones_may_stay(tmp_path):
    (tmp_path / "half.h").write_text(JOIN + "#define FIRST __TI\n")
    with pytest.raises(SourceError, match="may be joined to __TIME__"):
        silo.cuda('#include "half.h"\n__global__ void k(char *x) { J(FIRST, ME__); }', threads=1, include=[tmp_path])
    plain = JOIN + "#ifdef __has_include\n#endif\n#pragma unroll\n__global__ void J(k, 1)(int *_, int i, int ME__) {}\n"
    closed_text(CudaText("k.cu", plain, ()), HeaderFolders(None, ()), "k.cu")


def test_lines_and_names_of_files_lead_to_no_other_file(tmp_path):
    """``#line`` renames a text for messages: an include beside it is still looked for in the text's own folders."""
    (tmp_path / "secret.h").write_text("#define SECRET 1\n")
    for line in (f'#line 1 "{tmp_path}/k.cu"', f'# 1 "{tmp_path}/k.cu" 1'):
        text = f'{line}\n#include "secret.h"\n__global__ void k(int *x) {{ x[0] = SECRET; }}'
        closed = closed_text(CudaText("k.cu", text, ()), HeaderFolders(None, ()), "k.cu")
        assert closed.headers == ()


def test_the_second_library_of_nvrtc_is_loaded_from_its_folder(tmp_path):
    texts = {
        "libnvrtc-builtins.so.13.0": "int silo_builtins;",
        "libnvrtc.so.13": "#include <dlfcn.h>\nconst char *nvrtcGetErrorString(int e) { return e ? dlerror() : 0; }\n"
        'int nvrtcVersion(int *a, int *b) { *a = 13; *b = 0; return !dlopen("libnvrtc-builtins.so.13.0", RTLD_NOW); }',
    }
    for name, text in texts.items():
        command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-x", "c", "-", "-o", str(tmp_path / name)]
        subprocess.run(command, input=text.encode(), check=True)
    assert Nvrtc(NvrtcPlace(str(tmp_path / "libnvrtc.so.13"), "wheel")).release == "13.0"


def test_the_time_of_a_compile_is_refused_and_a_remark_about_it_is_not(tmp_path):
    (tmp_path / "own.h").write_text("\n#define WHEN __TIME__\n")
    with pytest.raises(SourceError, match=r"own\.h:2: __TIME__ differs from compile to compile"):
        silo.cuda('#include "own.h"\n__global__ void k() {}', threads=1, include=[tmp_path])
    silo.cuda('// not __DATE__\n__global__ void k(char *x) { const char *s = "__TIME__"; }', threads=1)


LITERAL_HEAD = """
__device__ int twice(int x) { return 2 * x; }
"""


def test_errors_about_a_literal_name_its_line_in_the_python_file():
    made = silo.cuda(
        LITERAL_HEAD
        + """
__global__ void k(int *x) {
  x[0] = twice(unknown_name);
}
""",
        threads=1,
    )
    lines = Path(__file__).read_text().splitlines()
    head = 1 + next(at for at, line in enumerate(lines) if line.startswith("__device__ int twice"))
    kernel = 1 + max(at for at, line in enumerate(lines) if line == "__global__ void k(int *x) {")
    source = made.kernel.source
    assert str(source) == f"k ({Path(__file__).name}:{kernel})"
    said = source.places.renamed("kernel.cu(5): error\nkernel.cu:2: note\nown/kernel.cu:2: note", "kernel.cu")
    name = Path(__file__).name
    assert said == f"{name}({kernel + 1}): error\n{name}:{head}: note\nown/kernel.cu:2: note"
    assert literal_places(__file__, "int other;\n").parts == ()
