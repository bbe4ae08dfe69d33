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
    ],
)
def test_it_is_refused_with_its_line(text, line, directive):
    with pytest.raises(SourceError, match=rf"k\.cu:{line}: #{directive} is not followed"):
        refuse_foreign_files(text, "k.cu")


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
    "text", ["", "#include <cub/block/block_reduce.cuh>\n", "#define embed 1\n", "int import = #embed;", "#embedded\n"]
)
def test_other_texts_pass(text):
    refuse_foreign_files(text, "k.cu")


def test_headers_of_a_named_beginning_pass_and_lead_nowhere_else():
    refuse_foreign_files("#include <c10/metal/utils.h>\n", "k.metal", (), ("c10/metal/",))
    with pytest.raises(SourceError, match="#include of"):
        refuse_foreign_files("#include <c10/metal/../../secret.h>\n", "k.metal", (), ("c10/metal/",))
