"""Reading PTX: directives in every spelling, and any bytes at all without harm."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binary_samples import add_by_triton, saxpy_ptx
from silo.artifacts.device_code import inspect_ptx, read_device_code
from silo.errors import CompileError, SourceError
from silo.launch.native import MAX_PARAMETERS


def kernel(parameters="", directives="", body="ret;", target="sm_90"):
    text = f".version 8.3\n.target {target}\n.visible .entry k({parameters}) {directives} {{ {body} }}"
    (found,) = inspect_ptx(text.encode())
    return found


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("", ()),
        (".param .u64 a", ((0, 8),)),
        (".param .u64 .ptr .global .align 16 a,\n.param .u64 .ptr .align 1 b", ((0, 8), (8, 8))),
        (".param .u8 a, .param .u64 b, .param .b16 c, .param .f32 d", ((0, 1), (8, 8), (16, 2), (20, 4))),
        (".param .align 2 .b8 a[2], .param .align 4 .b8 b[12]", ((0, 2), (4, 12))),
        (".param .align 64 .b8 map[128], .param .pred32 x", ((0, 128), (128, 4))),
        (".param .f64 %strange$1", ((0, 8),)),
    ],
)
def test_offsets_and_sizes(parameters, expected):
    assert kernel(parameters).parameters == expected


def test_directives():
    found = kernel(directives=".reqntid 64\n.maxntid 32, 4\n.minnctapersm 2 .reqnctapercluster 2, 2, 1 .maxnreg 32")
    assert (found.required_block, found.most_threads, found.cluster) == ((64, 1, 1), 128, (2, 2, 1))
    assert kernel().required_block is None
    assert kernel(target="sm_90a, debug").arch == "sm_90a"
    assert kernel(target="sm_100f").arch == "sm_100f"


def test_comments_and_strings_are_no_directives():
    text = (
        "// .target sm_10\n/* .entry no( */ .version 8.0\n.target sm_80\n"
        '.file 1 "a/*b//c }"\n.entry k(/* none */) // .reqntid 9\n{ .loc 1 2 3 "}" { ret; } }'
    )
    (found,) = inspect_ptx(text.encode())
    assert (found.entry, found.arch, found.required_block) == ("k", "sm_80", None)


def test_functions_and_declarations_are_no_kernels():
    text = saxpy_ptx().replace(
        ".visible .entry",
        ".extern .func (.param .b32 r) vprintf (.param .b64 a);\n.func helper() { ret; }\n.visible .entry",
    )
    assert [found.entry for found in inspect_ptx(text.encode())] == ["saxpy"]


def test_a_final_null_byte_is_taken():
    assert inspect_ptx(saxpy_ptx().encode() + b"\0")[0].entry == "saxpy"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"\xff\xfe", "no UTF-8 text: byte 0"),
        (b".target sm_80", "no .version"),
        (b".version 8.0 .target sm_80", "no .entry"),
        (b".version 8.0 .entry k(.param .u64 a", "ends within the parameters of k"),
        (b".version 8.0 .entry k(.param .u64 a) { { }", "ends before the body of k does"),
        (b".version 8.0 .entry k(.param .texref t) { }", "'.param .texref t', which is not read"),
        (b".version 8.0 .entry k(.param .align 0 .b8 t[4]) { }", "to 0 bytes"),
        (b".version 8.0 .entry k(.param .b8 t[" + b"9" * 5000 + b"]) { }", "not read"),
    ],
)
def test_what_is_wrong_is_named(text, what):
    with pytest.raises(CompileError, match=what):
        inspect_ptx(text)


def test_many_parameters():
    names = ", ".join(f".param .u32 p{i}" for i in range(MAX_PARAMETERS))
    assert len(kernel(names).parameters) == MAX_PARAMETERS


def test_an_unclosed_comment_is_read_once():
    with pytest.raises(CompileError):
        inspect_ptx(b".version 8.0 " + b"/*" * 200_000)


def outcome(data):
    try:
        return f"it is a {read_device_code(data, 'it').kind}"
    except SourceError as error:
        return str(error)


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=200)
    | st.sampled_from([b"\x7fELF", b".version 8.0 .target sm_80 "]).flatmap(
        lambda head: st.binary(max_size=200).map(lambda rest: head + rest)
    )
)
def test_any_bytes_are_taken_or_refused_with_a_reason(data):
    assert outcome(data).startswith("it ")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files_are_taken_or_refused_with_a_reason(data):
    good = data.draw(
        st.sampled_from([saxpy_ptx().encode(), *(add_by_triton(t)[0] for t in ("cuda:sm_90", "hip:gfx942"))])
    )
    at = data.draw(st.integers(0, len(good) - 1))
    changed = good[:at] + data.draw(st.binary(min_size=1, max_size=8)) + good[at + data.draw(st.integers(0, 8)) :]
    assert outcome(changed).startswith("it ")
