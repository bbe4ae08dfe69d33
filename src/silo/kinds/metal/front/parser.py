"""Parses a text in Metal Shading Language: tokens, kernels, casts that remove ``const``.

Reads declarations only; clang or Metal reads the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import NoReturn

from silo.errors import SourceError
from silo.frozen import frozen, replace

__all__ = [
    "AddressSpace",
    "ArrayDeclaration",
    "FunctionConstant",
    "MslKernel",
    "MslParameter",
    "MslText",
    "Token",
    "TokenKind",
    "parse_metal",
    "tokens_of",
    "written_by_cast",
]

# ---- Tokens: words, numbers, strings, signs, preprocessor lines. Comments are skipped ----

_WORD_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_DIGITS = frozenset("0123456789")
_WORD = _WORD_START | _DIGITS
_JOINED = frozenset(
    {"::", "[[", "]]", "->", "<<", "&&", "||", "==", "!=", "<=", ">=", "++", "--", "+=", "-=", "*=", "/="}
)


class TokenKind(Enum):
    """The kind of a token."""

    WORD = "word"
    NUMBER = "number"
    TEXT = "text"  # a string or a character literal
    SIGN = "sign"  # one or two characters; `>>` is two tokens, and `]]` one token only if a `[[` is open
    DIRECTIVE = "directive"  # a preprocessor line, with its continuation lines


@frozen
class Token:
    """A token: the text from ``begin`` up to ``end``, on ``line``, counted from 1."""

    kind: TokenKind
    text: str
    begin: int
    end: int
    line: int

    @property
    def is_word(self) -> bool:
        """Whether the token is a name or a keyword."""
        return self.kind is TokenKind.WORD


def tokens_of(text: str) -> tuple[Token, ...]:
    """Returns the tokens of any text; an unknown character becomes a sign of one character.

    >>> [one.text for one in tokens_of("device float *x [[buffer(0)]] // the input")]
    ['device', 'float', '*', 'x', '[[', 'buffer', '(', '0', ')', ']]']
    """
    tokens: list[Token] = []
    at, line, fresh, attributes = 0, 1, True, 0
    while at < len(text):
        kind, end = _piece(text, at, attributes, fresh=fresh)
        piece = text[at:end]
        if kind is not None:
            attributes += (piece == "[[") - (piece == "]]")
            tokens.append(Token(kind, piece, at, end, line))
        fresh = piece.endswith("\n") or (fresh and kind in (None, TokenKind.DIRECTIVE))
        line += piece.count("\n")
        at = end
    return tuple(tokens)


def _piece(text: str, at: int, attributes: int, *, fresh: bool) -> tuple[TokenKind | None, int]:
    """Returns the kind of the token at ``at`` (None for a blank) and its end.

    ``fresh``: the token is the first on its line.
    """
    first, two = text[at], text[at : at + 2]
    if first.isspace():
        return None, at + 1
    if two == "//":
        return None, _line_end(text, at)
    if two == "/*":
        close = text.find("*/", at + 2)
        return None, len(text) if close < 0 else close + 2
    if fresh and first == "#":
        return TokenKind.DIRECTIVE, _line_end(text, at)
    if first in "\"'":
        return TokenKind.TEXT, _string_end(text, at)
    if first in _WORD_START:
        return TokenKind.WORD, _while(text, at, _WORD)
    if first in _DIGITS or (first == "." and two[1:] in _DIGITS and len(two) == 2):
        return TokenKind.NUMBER, _number_end(text, at)
    return TokenKind.SIGN, at + (2 if two in _JOINED and (two != "]]" or attributes > 0) else 1)


def _while(text: str, at: int, kept_characters: frozenset[str]) -> int:
    while at < len(text) and text[at] in kept_characters:
        at += 1
    return at


def _line_end(text: str, at: int) -> int:
    """Returns the end of a line, including continuation lines after a backslash."""
    while True:
        close = text.find("\n", at)
        if close < 0:
            return len(text)
        if not text[:close].endswith("\\"):
            return close
        at = close + 1


def _string_end(text: str, at: int) -> int:
    quote, position = text[at], at + 1
    while position < len(text) and text[position] not in (quote, "\n"):
        position += 2 if text[position] == "\\" else 1
    return min(position + 1, len(text))


def _number_end(text: str, at: int) -> int:
    hexadecimal = text[at : at + 2] in ("0x", "0X")
    while at < len(text):
        signed = text[at] in "+-" and text[at - 1] in ("pP" if hexadecimal else "eE")
        if not (signed or text[at] in _WORD or text[at] in ".'"):
            break
        at += 1
    return at


# ---- The declarations of a text: kernels with their parameters, function constants ----

Span = tuple[int, int]  # the index of the first character, and the index after the last one


class AddressSpace(Enum):
    """The address space that a parameter points to."""

    DEVICE = "device"
    CONSTANT = "constant"
    THREADGROUP = "threadgroup"
    NONE = ""  # for parameters that are values (a position or a size) and point to nothing


@frozen
class MslParameter:
    """A parameter of a kernel. ``type`` is its type, or the type that it points to, as written (``float4``).

    ``attribute`` is the name in ``[[ ]]`` (``buffer``, ``threadgroup``, ``thread_position_in_grid``), with the
    attribute's ``index`` if it has one; ``form`` is ``*``, ``&`` or ""; ``span`` is the parameter's place in the text.
    """

    name: str
    type: str
    space: AddressSpace
    form: str
    const: bool
    attribute: str
    index: int
    span: Span
    line: int

    @property
    def is_buffer(self) -> bool:
        """Whether a call passes the parameter."""
        return self.attribute == "buffer"


@frozen
class MslKernel:
    """A kernel function.

    ``name`` is the name by which programs call the kernel: its ``host_name`` if it is an instance of a template.
    ``function`` is the kernel's C++ expression (``add<float>``). ``body`` is the span between its braces. ``group`` is
    the shape of the threadgroup that the kernel requires, () if it requires none.
    """

    name: str
    function: str
    parameters: tuple[MslParameter, ...]
    body: Span
    line: int
    group: tuple[int, ...] = ()
    most_threads: int = 1024
    # whether it is a template's instance: its parameters are the instance's, its text is shared by all instances
    template: bool = False

    @property
    def buffers(self) -> tuple[MslParameter, ...]:
        """The parameters that a call passes, in order of their indices, as in torch and MLX."""
        return tuple(
            sorted((parameter for parameter in self.parameters if parameter.is_buffer), key=lambda one: one.index)
        )


@frozen
class FunctionConstant:
    """A declaration ``constant type name [[function_constant(index)]];``. ``span`` is from the type to the ``;``."""

    name: str
    type: str
    index: int
    span: Span
    line: int


@frozen
class ArrayDeclaration:
    """A declaration ``threadgroup type a[n], b[m];`` in a function. ``arrays`` are the names with their dimensions."""

    type: str
    arrays: tuple[tuple[str, str], ...]
    span: Span  # the span includes the ``;``
    line: int


@frozen
class MslText:
    """A parsed text; ``file`` is its name in messages.

    ``refused`` are kernels that cannot be launched, each with the reason.
    """

    text: str
    file: str
    kernels: tuple[MslKernel, ...]
    constants: tuple[FunctionConstant, ...]
    arrays: tuple[ArrayDeclaration, ...]
    # explicit instances of templates: the name by which programs call each, and its statement
    instances: tuple[tuple[str, Span], ...]
    words: frozenset[str]
    refused: tuple[tuple[str, str], ...] = ()


# ---- Casts that remove ``const`` from a parameter, so that a kernel may write an array that it declares const ----

_CASTS = frozenset({"const_cast", "reinterpret_cast", "static_cast"})
_BEFORE_A_NAME = frozenset({"(", "&"})


def written_by_cast(body: str, names: Collection[str]) -> frozenset[str]:
    """Returns the ``names`` that a kernel's body casts to a pointer or a reference without ``const``.

    C casts and C++ casts are found if the name is the first word of the operand. A cast within a function that the
    kernel calls, or to a type alias, is not found: declare such a parameter without ``const``.

    >>> sorted(written_by_cast("((device float*)x)[i] = *(device const float*)z;", ["x", "z"]))
    ['x']
    >>> sorted(written_by_cast("const_cast<device float &>(x[i]) = 1;", ["x"]))
    ['x']
    """
    tokens = tokens_of(body)
    written: set[str] = set()
    for index, token in enumerate(tokens):
        if token.text == "(":
            end = _end(tokens, index, "(", ")")
        elif token.text in _CASTS and index + 1 < len(tokens) and tokens[index + 1].text == "<":
            end = _end(tokens, index + 1, "<", ">")
        else:
            continue
        kind = [token.text for token in tokens[index + 1 : end]]
        if not kind or kind[-1] not in ("*", "&") or "const" in kind:
            continue
        end += 1
        while end < len(tokens) and tokens[end].text in _BEFORE_A_NAME:
            end += 1
        if end < len(tokens) and tokens[end].text in names:
            written.add(tokens[end].text)
    return frozenset(written)


def _end(tokens: Sequence[Token], start: int, opening: str, closing: str) -> int:
    """Returns the index of the bracket that closes the bracket at ``start``; the number of tokens if there is none."""
    depth = 0
    for at in range(start, len(tokens)):
        depth += (tokens[at].text == opening) - (tokens[at].text == closing)
        if depth == 0:
            return at
    return len(tokens)


# ---- The parser ----

_OPEN = {"(": ")", "[": "]", "{": "}", "[[": "]]"}
_CLOSE = frozenset(_OPEN.values())
_QUALIFIERS = frozenset({"const", "volatile", "restrict", "__restrict", "thread", "coherent"})
_SPACES = {one.value: one for one in AddressSpace if one.value}
MOST_BUFFERS = 31
_TEXTURES = ("texture", "depth", "sampler", "imageblock", "visible_function_table", "intersection_function_table")


def parse_metal(text: str, file: str) -> MslText:
    """Parses a text.

    Raises:
        SourceError: brackets or declarations are malformed, or two kernels have one name; the message has the file
            and the line.
    """
    return _Parser(text, file).read()


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self._text, self._file = text, file
        tokens = tokens_of(text)
        self._tokens = tuple(token for token in tokens if token.kind is not TokenKind.DIRECTIVE)
        self._macros = _macros(tokens)
        self._pairs = self._paired()
        self._templates: dict[str, tuple[tuple[str, ...], MslKernel]] = {}
        self._kernels: list[MslKernel] = []
        self._constants: list[FunctionConstant] = []
        self._arrays: list[ArrayDeclaration] = []
        self._instances: list[tuple[str, Span]] = []
        self._refused: list[tuple[str, str]] = []

    def read(self) -> MslText:
        words = frozenset(token.text for token in self._tokens if token.is_word)
        for index, token in enumerate(self._tokens):
            if token.text == "function_constant":
                self._constant(index)
            elif token.text == "threadgroup" and self._begins(index):
                self._array(index)
            elif token.text == "kernel" and self._at(index + 1) != "(":
                self._kernel(index)
        self._check_names()
        return MslText(
            self._text,
            self._file,
            tuple(self._kernels),
            tuple(self._constants),
            tuple(self._arrays),
            tuple(self._instances),
            words,
            tuple(self._refused),
        )

    def _refuse(self, line: int, why: str) -> NoReturn:
        raise SourceError(f"{self._file}:{line}: {why}")

    def _at(self, index: int) -> str:
        return self._tokens[index].text if 0 <= index < len(self._tokens) else ""

    def _paired(self) -> dict[int, int]:
        """Returns for the index of each bracket the index of the matching one."""
        pairs: dict[int, int] = {}
        stack: list[int] = []
        for index, token in enumerate(self._tokens):
            if token.text in _OPEN:
                stack.append(index)
            elif token.text in _CLOSE:
                if not stack or _OPEN[self._tokens[stack[-1]].text] != token.text:
                    self._refuse(token.line, f"{token.text!r} closes nothing")
                pairs[stack[-1]] = index
                pairs[index] = stack.pop()
        if stack:
            last = self._tokens[stack[-1]]
            self._refuse(last.line, f"{last.text!r} is never closed")
        return pairs

    def _slice(self, begin: int, end: int) -> str:
        """Returns the text of the tokens from ``begin`` up to ``end``."""
        return self._text[self._tokens[begin].begin : self._tokens[end - 1].end] if end > begin else ""

    def _begins(self, index: int) -> bool:
        """Whether a statement begins at a token."""
        return self._at(index - 1) in (";", "{", "}")

    # Declarations

    def _constant(self, start: int) -> None:
        begin = start
        while begin and self._at(begin - 1) not in (";", "}", "{"):
            begin -= 1
        opening = start - 1
        while self._at(begin) == "static":
            begin += 1
        if self._at(begin) != "constant" or self._at(opening) != "[[" or self._at(start + 1) != "(":
            return  # ``function_constant`` is here an attribute of a parameter, or an unrelated name
        name = self._tokens[opening - 1]
        end = self._pairs[opening] + 1
        if self._at(end) != ";":
            self._refuse(name.line, f"the function constant {name.text} has a value of its own; it is given one")
        written = self._slice(start + 2, self._pairs[start + 1])
        index = self._index(written, name.line, f"the function constant {name.text}")
        kind = self._slice(begin + 1, opening - 1)
        span = (self._tokens[begin].begin, self._tokens[end].end)
        self._constants.append(FunctionConstant(name.text, kind, index, span, name.line))

    def _index(self, written: str, line: int, label: str) -> int:
        """Returns the value of an index: a number, a macro for a number, or a sum of these."""
        parts = [(self._macros.get(part.strip()) or part).strip() for part in written.split("+")]
        if not all(part.isdigit() for part in parts):
            self._refuse(line, f"{label} has the index {written!r}; write a number, or a macro that is one")
        return sum(map(int, parts))

    def _array(self, start: int) -> None:
        end = start
        while self._at(end) not in (";", "", "="):
            end = self._pairs[end] + 1 if self._at(end) in _OPEN else end + 1
        if self._at(end) != ";":
            return  # the tokens are a pointer with an initial value, or no declaration
        parts = self._split(start + 1, end)
        first = parts[0]
        if any(self._at(index) in ("*", "&", "(") for index in range(*first)):
            return  # a pointer
        name = self._declared(*first)
        kind = self._slice(first[0], name)
        arrays = [(self._at(name), self._slice(name + 1, first[1]))]
        arrays += [(self._at(begin), self._slice(begin + 1, stop)) for begin, stop in parts[1:]]
        span = (self._tokens[start].begin, self._tokens[end].end)
        self._arrays.append(ArrayDeclaration(kind, tuple(arrays), span, self._tokens[start].line))

    def _declared(self, begin: int, end: int) -> int:
        """Returns the index of the declared name: the last word outside of brackets."""
        name = begin
        position = begin
        while position < end:
            if self._at(position) in _OPEN:
                position = self._pairs[position]
            elif self._tokens[position].is_word:
                name = position
            position += 1
        return name

    def _split(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Returns the parts between commas outside of brackets, each as indices of tokens (begin, end).

        ``<`` and ``>`` count as brackets of templates.
        """
        parts: list[tuple[int, int]] = []
        first, depth, position = begin, 0, begin
        while position < end:
            word = self._at(position)
            if word in _OPEN:
                position = self._pairs[position]
            elif word == "<":
                depth += 1
            elif word == ">":
                depth -= 1
            elif word == "," and depth == 0:
                parts.append((first, position))
                first = position + 1
            position += 1
        return [*parts, (first, end)] if end > first else parts

    # Kernels

    def _kernel(self, index: int) -> None:
        """Reads the declaration around the word ``kernel`` at ``index``, which may be inside ``[[ ]]``."""
        begin = index
        while begin and self._at(begin - 1) not in (";", "}", "{"):
            begin -= 1
        at = self._attribute_end(index) if self._within_attribute(index) else index + 1
        while at < len(self._tokens) and self._at(at) not in ("(", ";", "decltype"):
            at = self._pairs[at] + 1 if self._at(at) == "[[" else at + 1
        if self._at(at) == "decltype":
            at = self._after_name(self._pairs[at + 1] + 1)
        attributes = self._attributes(begin, at)
        if self._at(begin) == "template" and self._at(begin + 1) != "<":
            self._instance(begin, at, attributes)
            return
        name = self._tokens[at - 1]
        if self._at(at) != "(" or not name.is_word:
            return
        close = self._pairs[at]
        body = close + 1
        while self._at(body) == "[[":
            body = self._pairs[body] + 1
        if self._at(body) != "{":
            return  # only a declaration; the definition is elsewhere
        span = (self._tokens[body].end, self._tokens[self._pairs[body]].begin)
        host = _literal(attributes.get("host_name", "")) or name.text
        try:
            parameters = _numbered([self._parameter(*part, name.text) for part in self._split(at + 1, close)])
        except SourceError as error:
            self._refused.append((host, str(error)))
            return
        kernel = MslKernel(
            host,
            name.text,
            parameters,
            span,
            name.line,
            _numbers(attributes.get("required_threads_per_threadgroup", "")),
            (_numbers(attributes.get("max_total_threads_per_threadgroup", "")) or (1024,))[0],
        )
        if self._at(begin) == "template":
            self._templates[name.text] = (self._template_names(begin), replace(kernel, template=True))
            return
        self._keep(kernel)

    def _after_name(self, index: int) -> int:
        """Returns the index after a name and its template arguments, which may contain brackets: ``(bool)0``."""
        depth = 0
        while self._at(index) not in (";", "(", "") or (depth and self._at(index) == "("):
            depth += (self._at(index) == "<") - (self._at(index) == ">")
            index = self._pairs[index] + 1 if self._at(index) == "(" else index + 1
        return index

    def _within_attribute(self, index: int) -> bool:
        """Whether a token is inside ``[[ ]]``."""
        while index and self._at(index) not in (";", "{", "}", "]]", "[["):
            index -= 1
        return self._at(index) == "[["

    def _attribute_end(self, index: int) -> int:
        """Returns the index after the ``]]`` of the attribute around a token."""
        while self._at(index) != "[[":
            index -= 1
        return self._pairs[index] + 1

    def _keep(self, kernel: MslKernel) -> None:
        """Adds a valid kernel, or adds an invalid one to ``refused``, so that the others can still be launched."""
        try:
            self._check(kernel)
        except SourceError as error:
            self._refused.append((kernel.name, str(error)))
        else:
            self._kernels.append(kernel)

    def _attributes(self, begin: int, end: int) -> dict[str, str]:
        """Returns the attributes between two indices: the name of each, and the text in its parentheses."""
        attributes: dict[str, str] = {}
        position = begin
        while position < end:
            if self._at(position) == "[[":
                close = self._pairs[position]
                for first, last in self._split(position + 1, close):
                    inner = self._slice(first + 2, last - 1) if self._at(first + 1) == "(" else ""
                    attributes[self._at(first)] = inner
                position = close
            position += 1
        return attributes

    def _template_names(self, begin: int) -> tuple[str, ...]:
        end = begin + 2
        depth = 1
        while depth:
            depth += (self._at(end) == "<") - (self._at(end) == ">")
            end += 1
        return tuple(self._at(stop - 1) for _, stop in self._split(begin + 2, end - 1))

    def _instance(self, begin: int, at: int, attributes: dict[str, str]) -> None:
        """Reads ``template [[host_name("add_float")]] [[kernel]] void add<float>(...);``, or with ``decltype``."""
        position = at - 1
        depth = 0
        while position > begin:
            depth += (self._at(position) == ">") - (self._at(position) == "<")
            if depth == 0:
                break
            position = self._pairs[position] - 1 if self._at(position) == ")" else position - 1
        # whether the instance's template arguments are written; if not, they follow from the types of its parameters
        written = self._at(at - 1) == ">"
        name = self._tokens[position - 1 if written else at - 1]
        host = _literal(attributes.get("host_name", ""))
        template = self._templates.get(name.text)
        if template is None:
            self._refused.append((host, f"{self._file}:{name.line}: {name.text} is no template that is defined before"))
            return
        if not host:
            self._refuse(name.line, f'this instance of {name.text} has no name: write [[host_name("...")]]')
        names, kernel = template
        try:
            if written:
                template_arguments = [self._slice(*part) for part in self._split(position + 1, at - 1)]
            else:
                template_arguments = self._deduced(at, names, kernel)
        except SourceError as error:
            self._refused.append((host, str(error)))
            return
        values = dict(zip(names, template_arguments, strict=False))
        parameters = tuple(
            replace(parameter, type=_substituted(parameter.type, values)) for parameter in kernel.parameters
        )
        function = f"{name.text}<{', '.join(template_arguments)}>"
        instance = replace(kernel, name=host, function=function, parameters=parameters, line=name.line)
        self._keep(instance)
        end = at
        while end < len(self._tokens) and self._at(end) != ";":
            end = self._pairs[end] + 1 if self._at(end) in _OPEN else end + 1
        self._instances.append((host, (self._tokens[begin].begin, self._tokens[min(end, len(self._tokens) - 1)].end)))

    def _deduced(self, at: int, names: Sequence[str], kernel: MslKernel) -> list[str]:
        """Returns a template's arguments, deduced from the types of an instance's parameters. Raises SourceError."""
        parts = self._split(at + 1, self._pairs[at])
        types = [self._parameter(*part, kernel.name).type for part in parts]
        values: dict[str, str] = {}
        for parameter, type_ in zip(kernel.parameters, types, strict=False):
            values = _matched(parameter.type, type_, names) | values
        deduced = [values[name] for name in names if name in values]
        if [name for name in names if name in values] != list(names[: len(deduced)]) or not deduced:
            line = self._tokens[at].line
            self._refuse(
                line, f"the types of this instance of {kernel.name} do not name {', '.join(names)}: write <...>"
            )
        return deduced

    def _parameter(self, begin: int, end: int, kernel: str) -> MslParameter:
        attributes = self._attributes(begin, end)
        # the attribute decides whether Metal's own launch passes the parameter; Silo's launch always passes it
        attributes.pop("function_constant", None)
        plain: list[Token] = []
        position = begin
        while position < end:
            if self._at(position) == "[[" or (self._at(position) == "(" and self._at(position - 1) == "coherent"):
                position = self._pairs[position] + 1
                continue
            plain.append(self._tokens[position])
            position += 1
        line = self._tokens[begin].line
        plain = self._expanded(plain, kernel)
        names = [token for token in plain if token.is_word]
        if len(names) < 2:
            self._refuse(line, f"{kernel}: a parameter without a name: {self._slice(begin, end)}")
        array = False
        if plain[-1].text == "]":  # `constant T a[2]` is a pointer
            opening = max(at for at, token in enumerate(plain) if token.text == "[")
            plain, array = plain[:opening], True
        name = plain[-1]
        if not name.is_word:
            self._refuse(line, f"{kernel}: the parameter {self._slice(begin, end)!r} is not understood")
        words = plain[:-1]
        space = next((_SPACES[word.text] for word in words if word.text in _SPACES), AddressSpace.NONE)
        form = "*" if array else "".join(word.text for word in words if word.text in ("*", "&"))
        const = any(word.text == "const" for word in words) or space is AddressSpace.CONSTANT
        kind = _spelled([word for word in words if word.text not in (*_SPACES, *_QUALIFIERS, "*", "&")])
        attribute = next(iter(attributes), "")
        index = -1
        if attribute in ("buffer", "threadgroup"):
            index = self._index(attributes[attribute].strip(), line, f"{kernel}: {name.text}")
        span = (self._tokens[begin].begin, self._tokens[end - 1].end)
        return MslParameter(name.text, kind, space, form, const, attribute, index, span, line)

    def _expanded(self, plain: Sequence[Token], kernel: str) -> list[Token]:
        """Returns the tokens of a parameter, with macros expanded."""
        tokens: list[Token] = []
        for one in plain:
            text = self._macros.get(one.text, one.text)
            if text is None:
                self._refuse(
                    one.line,
                    f"{kernel}: {one.text}(...) is a macro in the parameters, which are read without the preprocessor: "
                    "write out what it stands for",
                )
            tokens += [replace(part, line=one.line) for part in tokens_of(text)] if text != one.text else [one]
        return tokens

    def _check(self, kernel: MslKernel) -> None:
        used: dict[tuple[str, int], str] = {}
        for parameter in kernel.parameters:
            label = f"{kernel.name}: {parameter.name}"
            bare = parameter.type.removeprefix("metal::")
            if bare.startswith(_TEXTURES) or parameter.attribute in ("texture", "sampler"):
                self._refuse(
                    parameter.line,
                    f"{label} is a {parameter.type}: Silo launches kernels over buffers, without textures",
                )
            if "double" in parameter.type.split():
                self._refuse(parameter.line, f"{label} is a double, which Metal does not have: use float")
            if not parameter.attribute:
                self._refuse(
                    parameter.line,
                    f"{label} has no attribute: write [[thread_position_in_grid]], ...; device and constant buffers "
                    "alone get an index by their order",
                )
            if parameter.attribute == "stage_in" or (
                parameter.attribute == "buffer" and parameter.space in (AddressSpace.NONE, AddressSpace.THREADGROUP)
            ):
                self._refuse(parameter.line, f"{label} is a buffer: it is of the address space device or constant")
            if parameter.form not in ("*", "&") and parameter.space is not AddressSpace.NONE:
                self._refuse(
                    parameter.line,
                    f"{label} is in the address space {parameter.space.value}: it is a pointer or a reference",
                )
            if parameter.attribute == "buffer" and parameter.index >= MOST_BUFFERS:
                self._refuse(
                    parameter.line,
                    f"{label} has the index {parameter.index}; Metal has buffers 0 to {MOST_BUFFERS - 1}",
                )
            if parameter.attribute in ("buffer", "threadgroup"):
                key = (parameter.attribute, parameter.index)
                if key in used:
                    self._refuse(parameter.line, f"{label} has the index {parameter.index} of {used[key]}")
                used[key] = parameter.name

    def _check_names(self) -> None:
        lines: dict[str, int] = {}
        for kernel in self._kernels:
            if kernel.name in lines:
                self._refuse(
                    kernel.line,
                    f"there is a kernel {kernel.name} on line {lines[kernel.name]} already; #if is not looked at here: "
                    "a text has one kernel of a name",
                )
            lines[kernel.name] = kernel.line


def _numbered(parameters: Sequence[MslParameter]) -> tuple[MslParameter, ...]:
    """Returns the parameters; a buffer without an index gets the lowest free index, in order, as in Metal."""
    used_indices = {parameter.index for parameter in parameters if parameter.attribute == "buffer"}
    free = (index for index in range(len(parameters) + len(used_indices)) if index not in used_indices)
    numbered: list[MslParameter] = []
    for parameter in parameters:
        if (
            not parameter.attribute
            and parameter.form
            and parameter.space in (AddressSpace.DEVICE, AddressSpace.CONSTANT)
        ):
            numbered.append(replace(parameter, attribute="buffer", index=next(free)))
        else:
            numbered.append(parameter)
    return tuple(numbered)


def _literal(text: str) -> str:
    """Returns the text of adjacent string literals, joined."""
    return "".join(token.text[1:-1] for token in tokens_of(text) if token.kind is TokenKind.TEXT)


def _macros(tokens: Sequence[Token]) -> dict[str, str | None]:
    """Returns the text of each macro that ``#define`` sets; None for macros with arguments. The last definition counts.

    Definitions within ``#if`` are left out: such a definition may be a default that a constant of a launch replaces.
    """
    macros: dict[str, str | None] = {}
    depth = 0
    for token in tokens:
        if token.kind is not TokenKind.DIRECTIVE:
            continue
        words = token.text[1:].replace("\\\n", " ").split(maxsplit=2)
        depth += (words[:1] in (["if"], ["ifdef"], ["ifndef"])) - (words[:1] == ["endif"])
        if words[:1] != ["define"] or len(words) < 2 or depth:
            continue
        name, opened, _ = words[1].partition("(")
        macros[name] = None if opened else words[2] if len(words) > 2 else ""
    return macros


def _spelled(tokens: Sequence[Token]) -> str:
    """Returns a type in normal form: one space between words and after commas."""
    text = ""
    for token in tokens:
        joined = text and text[-1] not in "<:(" and token.text not in ("<", ">", "::", ",", "(", ")")
        text += f" {token.text}" if joined else token.text
    return text


def _substituted(kind: str, values: dict[str, str]) -> str:
    """Returns the type ``kind`` of a template, with the template's parameters replaced by an instance's ``values``."""
    return "".join(values.get(piece, piece) for piece in _pieces(kind))


def _matched(wanted: str, text: str, names: Collection[str]) -> dict[str, str]:
    """Returns the values of template parameters ``names`` that turn type ``wanted`` into ``text``; {} if none do.

    >>> _matched("Params<T, N>", "Params<float, 2>", ["T", "N"]), _matched("uint", "uint", ["T"])
    ({'T': 'float', 'N': '2'}, {})
    """
    pattern, pieces = [token.text for token in tokens_of(wanted)], [token.text for token in tokens_of(text)]
    values: dict[str, str] = {}
    at = 0
    for index, word in enumerate(pattern):
        end, depth = at + 1, 0
        if word in names:
            following = pattern[index + 1 : index + 2]
            end = at
            while end < len(pieces) and (depth or pieces[end : end + 1] != following):
                depth += (pieces[end] in ("<", "(")) - (pieces[end] in (">", ")"))
                end += 1
            values[word] = " ".join(pieces[at:end])
        elif pieces[at:end] != [word]:
            return {}
        at = end
    return values if at == len(pieces) else {}


def _pieces(text: str) -> list[str]:
    """Returns the tokens of a text and the text between them, alternately."""
    pieces: list[str] = []
    at = 0
    for token in tokens_of(text):
        pieces += [text[at : token.begin], token.text]
        at = token.end
    return [*pieces, text[at:]]


def _numbers(text: str) -> tuple[int, ...]:
    """Returns the numbers in an attribute; () if it contains an expression, as in templates."""
    parts = [part.strip() for part in text.split(",")]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()
