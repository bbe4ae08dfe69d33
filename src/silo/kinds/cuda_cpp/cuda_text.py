"""Reads texts in CUDA C++: includes, the names of kernels and of their parameters, members of structs.

Nothing here interprets the language: a compiler reads the types (:mod:`silo.kinds.cuda_cpp.signature_probe`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias

from silo.errors import SourceError
from silo.frozen import frozen, replace
from silo.sources.foreign_files import GAP

__all__ = [
    "Include",
    "KernelText",
    "Numbers",
    "Token",
    "TokenKind",
    "chosen_kernel",
    "closing",
    "flat_members",
    "includes_of",
    "kernels_of",
    "members_of",
    "parts_of",
    "qualified",
    "tokens_of",
    "with_constant_memory",
]

# ---- Tokens ----


class TokenKind(Enum):
    """The kind of a token. Comments and spaces are not tokens."""

    WORD = "word"
    NUMBER = "number"
    STRING = "string"
    SIGN = "sign"
    DIRECTIVE = "directive"  # a whole preprocessor line, with its continuations


class Token(NamedTuple):
    """A token with its position in the text."""

    kind: TokenKind
    text: str
    begin: int
    end: int


_TOKEN: Final = re.compile(
    r"""
      (?P<comment>//(?:[^\\\n]|\\\r?\n|\\.)*|/\*.*?(?:\*/|\Z))
    | (?P<string>(?:u8|u|U|L)?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
        |"(?:[^"\\\n]|\\.)*(?:"|(?=\n)|\Z)|'(?:[^'\\\n]|\\.)*(?:'|(?=\n)|\Z))
    | (?P<number>\.?[0-9](?:[eEpP][+-]|'?[\w]|\.)*)
    | (?P<word>[A-Za-z_$][\w$]*)
    | (?P<space>[\s\u180e\u200b\ufeff]+)
    | (?P<sign>::|->|%:|.)
    """,
    re.DOTALL | re.VERBOSE,
)
_LINE = re.compile(r"(?:[^\\\n]|\\[ \t]*\r?\n|\\.)*")
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")


def tokens_of(text: str) -> Iterator[Token]:
    """Yields the tokens of a text; a directive is one token."""
    at, starts = 0, True  # starts: whether only spaces and comments precede the index ``at`` on its line
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None  # any character matches as a sign
        kind, begin, at = str(match.lastgroup), match.start(), match.end()
        if kind == "mark":
            kind = "string"
        if kind in ("comment", "space"):
            starts = starts or "\n" in match.group()
            continue
        if starts and match.group() in ("#", "%:"):
            line = _LINE.match(text, begin)
            assert line is not None  # the pattern also matches the empty string
            at = line.end()
            yield Token(TokenKind.DIRECTIVE, line.group(), begin, at)
            continue
        starts = False
        yield Token(TokenKind(kind), match.group(), begin, at)


# ---- Includes ----


class Include(NamedTuple):
    """One ``#include``: the name, whether it is in quotes, and its line.

    The name is empty if a macro names the file.
    """

    name: str
    quoted: bool
    line: int


_INCLUDE = re.compile(rf"^{GAP}(?:\#|%:){GAP}include(?:_next)?\b{GAP}(?P<rest>[^\n]*)", re.MULTILINE | re.DOTALL)
_LITERAL = re.compile(r'"([^"\n]*)"|<([^>\n]*)>')
_MACRO = re.compile(r"[A-Za-z_$][\w$]*\s*(?:\(.*\))?\s*(?://.*|/\*.*)?")


def includes_of(text: str) -> tuple[Include, ...]:
    r"""Returns every ``#include`` of a text, even if conditions or comments leave it out.

    In doubt the result has more than the compiler would follow, never fewer: the compiler must not open any other file.

    >>> includes_of(  # doctest: +ELLIPSIS
    ...     '#include <mma.h>\n#inc\\\nlude "a/b.h"\n%: include NAME\n'
    ... )
    (Include(name='mma.h', quoted=False, line=1), Include(name='a/b.h', quoted=True, line=2), ...)
    """
    includes: dict[int, Include] = {}
    pieces = _CONTINUED.split(text)
    lines = [0]  # the number of lines of the text before each piece
    for piece in pieces:
        lines.append(lines[-1] + piece.count("\n") + 1)
    joined = "".join(pieces)
    ends = [0]
    for piece in pieces:
        ends.append(ends[-1] + len(piece))

    def line_of(at: int) -> int:
        line_index = max(number for number, end in enumerate(ends[:-1]) if end <= at)
        return lines[line_index] + joined.count("\n", ends[line_index], at) + 1

    directives = {token.begin for token in tokens_of(joined) if token.kind is TokenKind.DIRECTIVE}
    for match in _INCLUDE.finditer(joined):
        sign = joined.find("#", match.start())
        other = joined.find("%:", match.start())
        begin = min(position for position in (sign, other) if position >= 0)
        rest = match["rest"]
        literal = _LITERAL.match(rest)
        if literal is not None:
            name = literal[1] if literal[1] is not None else literal[2]
            includes[begin] = Include(name, literal[1] is not None, line_of(begin))
        elif begin in directives or _MACRO.fullmatch(rest):
            includes[begin] = Include("", quoted=False, line=line_of(begin))
    return tuple(includes[at] for at in sorted(includes))


# ---- Kernels, and the members of structs ----


@frozen
class KernelText:
    """A ``__global__`` function: its name, its parameters' names, the line of its name, whether it is a template.

    ``types`` has, for each parameter that is passed by value, the name of its type; "" for a pointer and the like.
    ``scope`` is the kernel's namespace; "" without one, or if the braces of the text do not match, for example because
    both branches of an ``#if`` open a brace.
    """

    name: str
    parameters: tuple[str, ...]
    line: int
    is_template: bool
    types: tuple[str, ...] = ()
    scope: str = ""


_OPENS = {"(": ")", "[": "]", "{": "}"}


def closing(tokens: Sequence[Token], at: int) -> int:
    """Returns the index after the bracket that closes the bracket at ``at``; the number of tokens if none does."""
    depth = 0
    for index in range(at, len(tokens)):
        sign = tokens[index].text
        depth += (sign in _OPENS) - (sign in _OPENS.values())
        if depth == 0:
            return index + 1
    return len(tokens)


def kernels_of(text: str) -> tuple[KernelText, ...]:
    """Returns the kernels that a text defines or declares, in order, each name once.

    >>> kernels_of('template<class T> __global__ void __launch_bounds__(64) k(const T *x, int n[2], float = 1);')
    (KernelText(name='k', parameters=('x', 'n', ''), line=1, is_template=True, types=('', '', 'float'), scope=''),)
    """
    words = [token for token in tokens_of(text) if token.kind is not TokenKind.DIRECTIVE]
    kernels: dict[str, KernelText] = {}
    scopes: list[str] = []  # the name of each open block; "" if it is not a namespace
    start = 0  # index of the declaration's first token
    at = 0
    while at < len(words):
        word = words[at]
        if word.text == "{":
            scopes.append(_namespace(words[start:at]))
        elif word.text == "}" and scopes:
            scopes.pop()
        if word.text in (";", "{", "}"):
            start = at + 1
        if word.text != "__global__":
            at += 1
            continue
        name = _named_function(words, at + 1)
        if name is None:
            at += 1
            continue
        end = closing(words, name + 1)
        parts = parts_of(words[name + 2 : end - 1])
        kernel = KernelText(
            words[name].text,
            tuple(_parameter_name(part) for part in parts),
            text.count("\n", 0, words[name].begin) + 1,
            any(word.text == "template" for word in words[start:at]),
            tuple(_value_type(part) for part in parts),
            "::".join(scope for scope in scopes if scope),
        )
        previous = kernels.get(kernel.name)
        if previous is None or (not all(previous.parameters) and all(kernel.parameters)):
            kernels[kernel.name] = kernel
        at = end
    return tuple(kernels.values()) if not scopes else tuple(replace(kernel, scope="") for kernel in kernels.values())


def _namespace(tokens: Sequence[Token]) -> str:
    """Returns the name of a namespace from the words before its ``{``; "" for an unnamed one or another block.

    >>> _namespace(list(tokens_of("inline namespace a::b")))
    'a::b'
    """
    texts = [word.text for word in tokens]
    if "namespace" not in texts[:2]:
        return ""
    name_tokens = takewhile(
        lambda one: one.kind is TokenKind.WORD or one.text == "::", tokens[texts.index("namespace") + 1 :]
    )
    return "".join(token.text for token in name_tokens)


def _named_function(tokens: Sequence[Token], at: int) -> int | None:
    """Returns the index of the function's name in the declaration around ``at``; None if it is not a function."""
    while at + 1 < len(tokens) and tokens[at].text not in (";", "{", "}"):
        if tokens[at].kind is TokenKind.WORD and tokens[at + 1].text == "(":
            end = closing(tokens, at + 1)
            if end < len(tokens) and tokens[end].text in ("{", ";"):
                return at
            at = end
        else:
            at += 1
    return None


def parts_of(tokens: Sequence[Token]) -> list[list[Token]]:
    """Returns the parts between commas outside of all brackets."""
    parts: list[list[Token]] = [[]]
    depth = angle = 0
    for word in tokens:
        depth += (word.text in _OPENS) - (word.text in _OPENS.values())
        angle += (word.text == "<") - (word.text == ">" and angle > 0)
        if word.text == "," and depth == 0 and angle == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part and [token.text for token in part] != ["void"]]


_TYPE_WORDS = frozenset(
    [
        "const",
        "volatile",
        "unsigned",
        "signed",
        "int",
        "long",
        "short",
        "char",
        "float",
        "double",
        "bool",
        "void",
        "struct",
        "auto",
    ]
)


def _parameter_name(tokens: Sequence[Token]) -> str:
    """Returns the name at the end of a parameter's declaration; "" without a name."""
    own = list(tokens)
    for index, word in enumerate(own):
        if word.text == "=":
            own = own[:index]
            break
    while own and own[-1].text == "]":
        depth = 0
        for index in range(len(own) - 1, -1, -1):
            depth += (own[index].text == "]") - (own[index].text == "[")
            if depth == 0:
                own = own[:index]
                break
        else:
            return ""
    for index, word in enumerate(own):
        inner = index + 1
        while word.text == "(" and inner < len(own) and own[inner].text in ("*", "&"):
            inner += 1
        if index + 1 < inner < len(own) and own[inner].kind is TokenKind.WORD:
            return own[inner].text  # a function pointer: float (*name)(float)
    last = own[-1] if own else None
    if last is None or last.kind is not TokenKind.WORD or last.text in _TYPE_WORDS or len(own) < 2:
        return ""
    return "" if own[-2].text == "::" else last.text


def _value_type(tokens: Sequence[Token]) -> str:
    """Returns the type of a value as written, without qualifiers; "" for a pointer, a reference or an array."""
    own: list[str] = []
    for at, word in enumerate(tokens):
        if word.text in ("*", "&", "[", "("):
            return ""
        if word.text == "<" and any(item.text in ("*", "&", "[", "(") for item in _after_angle(tokens[at:])):
            return ""
        if word.text in ("=", "<"):
            own.append("")  # a placeholder for a missing name, which is left out below
            break
        if word.kind is TokenKind.WORD and word.text not in _QUALIFIERS:
            own.append(word.text)
    has_name = len(own) > 1 and own[-1] not in _TYPE_WORDS
    return " ".join(item for item in (own[:-1] if has_name else own) if item)


def _after_angle(tokens: Sequence[Token]) -> Sequence[Token]:
    """Returns the words after a template argument list (``<...>``); ``tokens`` begins with the list."""
    depth = 0
    for index, word in enumerate(tokens):
        depth += (word.text == "<") - (word.text == ">")
        if depth == 0:
            return tokens[index + 1 :]
    return ()


_QUALIFIERS = frozenset(("const", "volatile", "struct", "__grid_constant__", "__restrict__"))
_VECTOR_TYPE = re.compile(r"(u?char|u?short|u?int|u?long|u?longlong|float|double)([1-4])")
_MOST_NESTED = 16


def flat_members(texts: Sequence[str], name: str, nested: int = 0) -> tuple[tuple[str, str], ...]:
    """Returns the members of a struct, each with its type; a nested struct or array is replaced by its own members.

    () if no text defines the struct. Names are joined by dots; the type of a pointer is "".

    >>> flat_members(["struct Q { int n; }; struct P { Q q; float a[2]; int *p; };"], "P")
    (('q.n', 'int'), ('a.0', 'float'), ('a.1', 'float'), ('p', ''))
    """
    if (match := _VECTOR_TYPE.fullmatch(name)) is not None:
        return tuple((axis, match[1]) for axis in "xyzw"[: int(match[2])])
    if name == "dim3":
        return tuple((axis, "unsigned") for axis in "xyz")
    flat: list[tuple[str, str]] = []
    body = next((body for text in texts if (body := _struct_body(text, name))), ())
    for member in _members(body) if nested < _MOST_NESTED else ():
        inner = flat_members(texts, member.type, nested + 1) if member.type else ()
        names = [member.name]
        for size in member.sizes:
            names = [f"{name}.{index}" for name in names for index in range(min(size, 4096))]
        for member_name in names:
            flat += [(f"{member_name}.{own}", kind) for own, kind in inner] or [(member_name, member.type)]
    return tuple(flat)


_ATTRIBUTES = ("alignas", "__align__", "__attribute__")


class _Member(NamedTuple):
    """A data member: its name, its type's name if it is a value of a named type, and the sizes if it is an array."""

    name: str
    type: str
    sizes: tuple[int, ...]


def members_of(text: str, name: str) -> tuple[str, ...]:
    """Returns the names of a struct's data members in a text, in order; () if the text does not define the struct.

    >>> members_of("struct P { const float *x, *y; int n = 3; float a[2]; int f() { return n; } };", "P")
    ('x', 'y', 'n', 'a')
    """
    return tuple(member.name for member in _members(_struct_body(text, name)))


def _struct_body(text: str, name: str) -> Sequence[Token]:
    words = [token for token in tokens_of(text) if token.kind is not TokenKind.DIRECTIVE]
    for at in range(len(words) - 2):
        if words[at].text not in ("struct", "class", "union") or (at > 0 and words[at - 1].text == "enum"):
            continue
        head = at + 1
        while head < len(words) and words[head].text not in ("{", ";", "(", ")", ",", ">", "="):
            aligned = words[head].text in _ATTRIBUTES and head + 1 < len(words)
            head = closing(words, head + 1) if aligned else head + 1
        own = [word.text for word in words[at + 1 : head]]
        before_bases = own[: own.index(":")] if ":" in own else own
        end = closing(words, head) if head < len(words) else head
        alias = words[end].text if end < len(words) else ""
        if head < len(words) and words[head].text == "{" and (name in before_bases or alias == name):
            return words[head + 1 : end - 1]
    return ()


def _members(tokens: Sequence[Token]) -> Iterator[_Member]:
    at = 0
    while at < len(tokens):
        end = at
        while end < len(tokens) and tokens[end].text != ";":
            body = tokens[end].text == "{" and end > at and tokens[end - 1].text in (")", "const")
            end = closing(tokens, end) if tokens[end].text in _OPENS else end + 1
            if body:
                break
        own = [word for word in tokens[at:end] if word.text not in ("public", "private", "protected", ":")]
        texts = [token.text for token in own]
        function = any(text == "(" for text in texts) and "=" not in texts[: texts.index("(")]
        skipped = texts[:1] and texts[0] in ("using", "typedef", "static", "friend", "template", "static_assert")
        if not function and not skipped and len(own) > 1:
            parts = parts_of(own)
            kind = _value_type([*parts[0]])
            for number, part in enumerate(parts):
                declarator = part if number == 0 or len(part) > 1 else [own[0], part[0]]
                if (name := _parameter_name(declarator)) != "":
                    starred = any(token.text in "*&" for token in part)
                    type_name = "" if starred else kind or _element_type(parts[0])
                    yield _Member(name, type_name, _sizes(part))
        at = end + (end < len(tokens) and tokens[end].text == ";")


def _element_type(tokens: Sequence[Token]) -> str:
    """Returns the name of an array's element type; "" for an array of pointers."""
    brackets = [at for at, word in enumerate(tokens) if word.text == "["]
    return _value_type(tokens[: brackets[0]]) if brackets else ""


def _sizes(tokens: Sequence[Token]) -> tuple[int, ...]:
    """Returns the sizes in an array's declaration; a size that is not a number counts as 1."""
    sizes: list[int] = []
    for at, word in enumerate(tokens[:-1]):
        if word.text == "=":
            break
        if word.text == "[":
            text = tokens[at + 1].text
            sizes.append(int(text) if text.isdigit() else 1)
    return tuple(sizes)


# ---- Constant memory ----

Numbers: TypeAlias = "int | float | Sequence[Numbers]"
"""A number, or nested sequences of numbers."""


def with_constant_memory(text: str, file: str, values: Mapping[str, Numbers]) -> str:
    """Returns a text in which ``__constant__`` variables are initialized with these values. Line numbers stay the same.

    >>> with_constant_memory("__constant__ float c[2];", "k.cu", {"c": [1, 2.5]})
    '__constant__ float c[2] = {1, 2.5};'

    Raises:
        SourceError: the text declares no such variable, or initializes it itself; or a value is not a finite number.
    """
    words = [token for token in tokens_of(text) if token.kind is not TokenKind.DIRECTIVE]
    places: dict[str, int] = {}
    for at, word in enumerate(words):
        if word.text != "__constant__":
            continue
        end = next((index for index in range(at, len(words)) if words[index].text == ";"), len(words))
        own = words[at:end]
        if end < len(words) and not any(part.text in ("=", "{", "extern") for part in own):
            places[_parameter_name(own)] = words[end].begin
    for name in values:
        if name not in places:
            raise SourceError(
                f"{file}: there is no __constant__ variable {name!r} without values; it has "
                f"{', '.join(filter(None, places)) or 'none'}"
            )
    for name, numbers in sorted(values.items(), key=lambda item: -places[item[0]]):
        text = f"{text[: places[name]]} = {_initializer(file, name, numbers)}{text[places[name] :]}"
    return text


def _initializer(file: str, name: str, values: Numbers) -> str:
    if isinstance(values, bool | int):
        return str(int(values))
    if isinstance(values, float) and math.isfinite(values):
        return repr(values)
    if isinstance(values, Sequence) and not isinstance(values, str) and values:
        return "{" + ", ".join(_initializer(file, name, number) for number in values) + "}"
    raise SourceError(f"{file}: {name} in constant memory cannot be {values!r}: give finite numbers, or rows of them")


def chosen_kernel(text: str, file: str, entry: str | None) -> tuple[str, KernelText | None]:
    """Returns the entry's expression, and its kernel, which is None if a header or a macro defines it.

    Raises:
        SourceError: no kernel in the text, several kernels without ``entry``, or the only kernel is a template.
    """
    kernels = kernels_of(text)
    if entry is None:
        listing = ", ".join(kernel.name for kernel in kernels)
        if len(kernels) != 1:
            message = f"which kernel? Give entry= one of {listing}" if kernels else "no __global__ function is here"
            raise SourceError(f"{file}: {message}")
        if kernels[0].is_template:
            name = kernels[0].name
            raise SourceError(f"{file}: {name} is a template: give its arguments, for example entry='{name}<float>'")
        return qualified(kernels[0].name, kernels[0]), kernels[0]
    name = entry.partition("<")[0].strip().rpartition("::")[2]
    kernel = next((kernel for kernel in kernels if kernel.name == name), None)
    return qualified(entry, kernel), kernel


def qualified(entry: str, kernel: KernelText | None) -> str:
    """Returns an entry with the namespace of its kernel, unless the author wrote a namespace."""
    bare = "::" not in entry.partition("<")[0]
    return f"{kernel.scope}::{entry}" if kernel is not None and kernel.scope and bare else entry
