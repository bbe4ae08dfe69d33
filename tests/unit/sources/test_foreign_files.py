"""Directives that read files which no include names are refused, in each way of writing them."""

import pytest

from silo.errors import SourceError
from silo.sources.foreign_files import refuse_foreign_files


@pytest.mark.parametrize(
    ("text", "line", "directive"),
    [
        ('#embed "/etc/hostname"', 1, "embed"),
        ("int a;\n\n  #  import <x.h>", 3, "import"),
        ('%:include_next "x"', 1, "include_next"),
        ('#/* a */embed/* b */"x"', 1, "embed"),
        ('/* a\n */ # embed "x"', 2, "embed"),
        ('\n#em\\\nbed "x"', 2, "embed"),
        ('#\\  \n  import "x"', 2, "import"),
        ('int a;\r#embed "x"', 2, "embed"),
        ('int a;\r\n#embed "x"\r\n', 2, "embed"),
        ('static char d[] = {\n#embed "x"\n};', 2, "embed"),
        ('#em\\\f\nbed "x"', 1, "embed"),
        ('#em\\ \v\nbed "x"', 1, "embed"),
        ('\ufeff#embed "x"', 1, "embed"),
        ('#\u00a0embed "x"', 1, "embed"),
    ],
)
def test_it_is_refused_with_its_line(text, line, directive):
    with pytest.raises(SourceError, match=rf"k\.cu:{line}: #{directive} is not followed"):
        refuse_foreign_files(text, "k.cu")


@pytest.mark.parametrize("text", ["\n??=embed x", "\n#em??/\nbed x", "\n#\0embed x"])
def test_a_sign_that_may_hide_a_directive_is_refused(text):
    with pytest.raises(SourceError, match=r"k\.cu:2: (the trigraph|a zero byte).* is refused"):
        refuse_foreign_files(text, "k.cu")


@pytest.mark.parametrize(
    "question",
    [
        *('__has_include("/etc/hostname")', "__has_include ( </etc/hostname> )", '__has_include("a/../../b.h")'),
        *("__has_include(NAME)", "__has_include\\\n(NAME)", '__has_embed("a.h")', '__has_include_next("a.h")'),
    ],
)
def test_no_text_asks_whether_a_foreign_file_is_there(question):
    with pytest.raises(SourceError, match=r"k\.cu:2: __has_\w+ is followed for a name in quotes"):
        refuse_foreign_files(f"int a;\n#if {question}\n#endif\n", "k.cu")
    with pytest.raises(SourceError, match=r"k\.cu:1: __has_include is followed"):
        refuse_foreign_files('#define HAS __has_include\n#if HAS("/etc/hostname")\n#endif\n', "k.cu")


@pytest.mark.parametrize("text", ["\n#undef asm", "\n # define __asm__ x", "\n#define asm(x) y", "\n#undef __asm"])
def test_a_macro_cannot_give_assembly_back(text):
    with pytest.raises(SourceError, match=r"k\.cu:2: asm is a word of the language"):
        refuse_foreign_files(text, "k.cu")


@pytest.mark.parametrize("directive", ['"a.h"', "</etc/passwd>", "<vector>", "NAME", "/* a */<../a>"])
def test_an_include_of_another_file_is_refused_with_its_line(directive):
    with pytest.raises(SourceError, match=r"k\.metal:3: #include of .* headers \(metal_math, metal_stdlib\)"):
        refuse_foreign_files(
            f"#include <metal_stdlib>\n\n#include {directive}\n", "k.metal", ("metal_math", "metal_stdlib")
        )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#include <cub/block/block_reduce.cuh>\n",
        "#define embed 1\n",
        "int import = #embed;",
        "#embedded\n",
        "#if defined(__has_include) && __has_include(<nv/target>)\n",
    ],
)
def test_other_texts_pass(text):
    refuse_foreign_files(text, "k.cu")


def test_headers_of_a_named_beginning_pass_and_lead_nowhere_else():
    refuse_foreign_files("#include <c10/metal/utils.h>\n", "k.metal", (), ("c10/metal/",))
    with pytest.raises(SourceError, match="#include of"):
        refuse_foreign_files("#include <c10/metal/../../secret.h>\n", "k.metal", (), ("c10/metal/",))
