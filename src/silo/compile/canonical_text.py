"""C text without its comments: the form in which headers count for a compiler's identity."""

from __future__ import annotations

import re

__all__ = ["canonical_c", "is_c_text"]

_C_SUFFIXES = frozenset({".c", ".cc", ".cl", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".m", ".metal", ".mm"})
_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(?:define|if|ifdef|ifndef|include|pragma)\b", re.MULTILINE)
_LINE_END = re.compile(r"\s*\n")

# A number may hold a quote (1'000), and a name may precede a literal (L'x', R"(...)"), so both are tokens of their own.
_TOKEN = re.compile(
    r"""
      (?P<comment> //(?:\\[ \t\r]*\n|[^\n])* | /\*.*?(?:\*/|\Z) )
    | (?P<joined> \\[ \t\r]*\n )
    | (?P<kept> (?:u8|[uUL])?R"(?P<mark>[^()\\\s"]{0,16})\(.*?\)(?P=mark)"
              | "(?:\\.|[^"\\\n])*"
              | '(?:\\.|[^'\\\n])+'
              | \#[ \t]*(?:include|import)[ \t]*<[^>\n]*>
              | \.?\d(?:[eEpP][+-]|'\w|[\w.])*
              | [A-Za-z_$]\w* )
    """,
    re.VERBOSE | re.DOTALL,
)


def is_c_text(name: str, data: bytes) -> bool:
    """Whether a file is C or a language with its comments: by its suffix; without one, by a preprocessor directive.

    >>> is_c_text("half.h", b""), is_c_text("metal_math", b"#pragma once"), is_c_text("notes.txt", b"#include <x>")
    (True, True, False)
    """
    _, dot, suffix = name.rpartition(".")
    return f".{suffix}" in _C_SUFFIXES if dot else _DIRECTIVE.search(data) is not None


def canonical_c(text: str) -> str:
    r"""``text`` with each comment as one space, and without blanks at the end of lines and empty lines.

    Lines that a backslash joins are one line, also in comments. Literals, also raw ones, stay as they are.

    >>> canonical_c('int x; // one\n\n/* two\n */ char *s = "// three";  ')
    'int x;\n  char *s = "// three";\n'
    """
    done: list[str] = []
    code: list[str] = []
    end = 0
    for match in _TOKEN.finditer(text):
        code.append(text[end : match.start()])
        end = match.end()
        if match["comment"] is not None:
            code.append(" ")
        elif match["joined"] is not None:
            code.append("")
        elif "\n" in match[0]:  # a literal, and its blank lines are its own
            done += (_tidied(code), match[0])
            code = []
        else:
            code.append(match[0])
    code += (text[end:], "\n")
    return "".join((*done, _tidied(code))).lstrip("\n")


def _tidied(code: list[str]) -> str:
    return _LINE_END.sub("\n", "".join(code))
