"""Finds kernels that a macro defines: ``MAKE(float, add)`` for ``#define MAKE(T, name) __global__ void name(...)``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from silo.frozen import replace
from silo.kinds.cuda_cpp.cuda_text import KernelText, Token, TokenKind, closing, kernels_of, parts_of, tokens_of

__all__ = ["macro_kernel"]

_DEFINE = re.compile(r"(?:#|%:)\s*define\s+(?P<name>[A-Za-z_]\w*)\((?P<parameters>[^)]*)\)(?P<body>.*)", re.DOTALL)
_CONTINUED = re.compile(r"\\[ \t]*\n")
_DEEPEST = 4  # the deepest nesting of macros that is expanded
_MOST = 4000  # the most uses of macros that are expanded


class _Macro(NamedTuple):
    parameters: tuple[str, ...]
    body: str


def macro_kernel(texts: Sequence[str], entry: str) -> KernelText | None:
    r"""Returns the kernel ``entry`` that a use of a macro in the texts defines; None if no macro defines it.

    The macro makes the kernel's name from its parameters, perhaps with ``##``. The kernel's line is the line of the
    macro's use in the first text; 0 if another text uses the macro.

    >>> macro_kernel(["#define MAKE(T) __global__ void k_##T(T *x, int n) {}\nMAKE(int)"], "k_int").parameters
    ('x', 'n')
    """
    macros: dict[str, _Macro] = {}
    for text in texts:
        for token in tokens_of(text):
            match = _DEFINE.match(token.text) if token.kind is TokenKind.DIRECTIVE else None
            if match is not None:
                parameters = tuple(name.strip() for name in match["parameters"].split(","))
                macros.setdefault(match["name"], _Macro(parameters, _CONTINUED.sub("\n", match["body"])))
    if not any("__global__" in macro.body for macro in macros.values()):
        return None
    budget = [_MOST]
    for index, text in enumerate(texts):
        for begin, expansion in _expansions(text, macros, _DEEPEST, budget):
            for kernel in kernels_of(expansion) if "__global__" in expansion else ():
                if kernel.name == entry:
                    return replace(kernel, line=text.count("\n", 0, begin) + 1 if index == 0 else 0, scope="")
    return None


def _expansions(
    text: str, macros: Mapping[str, _Macro], depth: int, expansions_left: list[int]
) -> Iterator[tuple[int, str]]:
    """Yields the position and the text of each use of a macro. A macro within a macro has the outer one's position."""
    words = [token for token in tokens_of(text) if token.kind is not TokenKind.DIRECTIVE]
    for at, word in enumerate(words[:-1]):
        macro = macros.get(word.text)
        if macro is None or words[at + 1].text != "(" or expansions_left[0] <= 0:
            continue
        expansions_left[0] -= 1
        expanded = _substituted(text, macro, parts_of(words[at + 2 : closing(words, at + 1) - 1]))
        if expanded is None:
            continue
        yield word.begin, expanded
        if depth > 0:
            for _, inner in _expansions(expanded, macros, depth - 1, expansions_left):
                yield word.begin, inner


def _substituted(text: str, macro: _Macro, arguments: Sequence[Sequence[Token]]) -> str | None:
    """Returns the body of a macro with its parameters replaced; None if the number of arguments differs."""
    if len(arguments) != len(macro.parameters):
        return None
    values = {name: text[part[0].begin : part[-1].end] for name, part in zip(macro.parameters, arguments, strict=True)}
    body = re.sub(r"[A-Za-z_]\w*", lambda found: values.get(found.group(), found.group()), macro.body)
    return re.sub(r"\s*##\s*", "", body)
