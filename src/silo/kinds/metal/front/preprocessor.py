"""A preprocessor for texts whose macros make kernels, or that include files from named folders.

It carries out directives and expands the text's macros, so that the parser finds the kernels. Includes of Metal's own
library, and the macros that the library defines, stay. ``#line`` directives keep the line numbers of the files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from silo.errors import SourceError
from silo.kinds.metal.front.parser import Token, TokenKind, tokens_of
from silo.plain_files import read_plain

__all__ = ["METAL_VERSION", "makes_kernels", "preprocess"]

METAL_VERSION = 310
"""The value of ``__METAL_VERSION__`` in conditions: Metal 3.1, the first version with bfloat."""

_PREDEFINED = {"__METAL__": "1", "__METAL_VERSION__": str(METAL_VERSION), "__HAVE_BFLOAT__": "1"}
_MOST_NESTED = 64  # the deepest nesting of files that include each other, and of macros that expand to each other
_MOST_TEXT = 64 << 20  # the most characters of the expanded text
_MOST_WORDS = 1 << 20  # the most words from one use of a macro, whose text may double at each level
_INCLUDE = re.compile(r'\s*(?:"([^"]+)"|<([^>]+)>)')
_HEAD = re.compile(r"\s*([A-Za-z_]\w*)(\(([^)]*)\))?\s*(.*)", re.DOTALL)
_KERNEL_WORDS = frozenset({"kernel", "host_name", "[["})


@dataclass(frozen=True, slots=True)
class _Macro:
    """A macro. ``parameters`` is None if it has no parameter list; ``__VA_ARGS__`` is last for a variadic macro."""

    body: tuple[str, ...]
    parameters: tuple[str, ...] | None = None
    variadic: bool = False


def makes_kernels(text: str) -> bool:
    r"""Whether a text needs the preprocessor: a macro contains kernels or attributes, or a file is included.

    >>> makes_kernels("#define K(T) kernel void f_##T() {}"), makes_kernels("#define N 4\nkernel void f() {}")
    (True, False)
    """
    for token in tokens_of(text):
        if token.kind is TokenKind.DIRECTIVE:
            name, rest = _directive(token.text)
            if name == "include" and rest.lstrip().startswith('"'):
                return True
            if name == "define" and "(" in rest and _KERNEL_WORDS & {part.text for part in tokens_of(rest)}:
                return True
    return False


def preprocess(text: str, file: str, folders: Sequence[Path], macro_names: Collection[str] = ()) -> str:
    """Returns the text with files of ``folders`` included, and with its macros expanded.

    Args:
        text: the text.
        file: the text's name, for messages.
        folders: the folders that are searched for included files, in this order. Nothing outside of them is read.
        macro_names: names that a launch defines. They count as defined, stay unexpanded, and no condition reads their
            value.

    Raises:
        SourceError: a file is missing, a directive or a use of a macro is malformed, or ``#error`` is reached.
    """
    run = _Run([folder.resolve() for folder in folders], frozenset(macro_names))
    run.macros.update({name: _Macro((value,)) for name, value in _PREDEFINED.items()})
    run.file(text, file, 0)
    return "".join(run.parts)


def _directive(text: str) -> tuple[str, str]:
    """Returns the name of a directive, and the text after it without comments and line ends."""
    joined = text[1:].replace("\\\n", " ").strip()
    joined = re.sub(r"/\*.*?\*/|//[^\n]*", " ", joined, flags=re.DOTALL)
    name = re.match(r"\w*", joined)
    word = "" if name is None else name.group()
    return word, joined[len(word) :]


@dataclass(slots=True)
class _Condition:
    active: bool  # whether the lines that follow are kept
    taken: bool  # whether a branch was taken already, or no branch can be taken
    line: int


@dataclass(slots=True)
class _Run:
    folders: list[Path]
    given: frozenset[str]
    macros: dict[str, _Macro] = field(default_factory=dict[str, _Macro])
    parts: list[str] = field(default_factory=list[str])
    once: set[Path] = field(default_factory=set[Path])
    size: int = 0
    words: int = 0  # number of words made so far by the macro that is being expanded

    def put(self, text: str) -> None:
        self.size += len(text)
        if self.size > _MOST_TEXT:
            raise SourceError(f"the preprocessed text has more than {_MOST_TEXT >> 20} MiB of characters")
        self.parts.append(text)

    def file(self, text: str, name: str, depth: int, path: Path | None = None) -> None:
        """Processes one file: its directives in order, and the text between them."""
        if depth > _MOST_NESTED:
            raise SourceError(f"{name}: more than {_MOST_NESTED} files include each other")
        stack: list[_Condition] = []
        self.put(f'#line 1 "{name}"\n')
        at = 0
        for token in tokens_of(text):
            if token.kind is not TokenKind.DIRECTIVE:
                continue
            self._text(text[at : token.begin], name, text.count("\n", 0, at) + 1, active=_active(stack))
            self._do(token, name, depth, stack, path)
            at = token.end
        self._text(text[at:], name, text.count("\n", 0, at) + 1, active=_active(stack))
        if stack:
            raise SourceError(f"{name}:{stack[-1].line}: this condition has no #endif")
        self.put("\n")

    # Directives

    def _do(self, token: Token, name: str, depth: int, stack: list[_Condition], path: Path | None) -> None:
        word, rest = _directive(token.text)
        lines = "\n" * token.text.count("\n")
        if word in ("if", "ifdef", "ifndef", "elif", "else", "endif"):
            self._condition(word, rest, name, token.line, stack)
            self.put(lines)
            return
        if not _active(stack):
            self.put(lines)
            return
        if word == "define":
            self._define(rest, name, token.line)
        elif word == "undef":
            self.macros.pop(rest.strip(), None)
        elif word == "error":
            raise SourceError(f"{name}:{token.line}: #error{rest.rstrip()}")
        elif word == "include":
            if self._include(rest, name, token.line, depth):
                self.put(f'#line {token.line} "{name}"\n')
            else:
                self.put(token.text)
        elif word == "pragma" and rest.strip() == "once":
            if path is not None:
                self.once.add(path)
        elif word in ("pragma", "line"):
            words = _words(tokens_of(rest))
            # expand the macros now, because the output has no #define for them
            if any(part in self.macros for part in words):
                self.words = 0
                self.put(f"#{word} {' '.join(self._expand(words, frozenset(), 0, f'{name}:{token.line}'))}")
            else:
                self.put(token.text)
        self.put(lines if word not in ("pragma", "include") else "")

    def _condition(self, word: str, argument: str, name: str, line: int, stack: list[_Condition]) -> None:
        if word in ("if", "ifdef", "ifndef"):
            outer = _active(stack)
            holds = outer and self._holds(word, argument, name, line)
            stack.append(_Condition(holds, holds or not outer, line))
            return
        if not stack:
            raise SourceError(f"{name}:{line}: #{word} without #if")
        if word == "endif":
            stack.pop()
            return
        top = stack[-1]
        top.active = not top.taken and (word == "else" or self._holds("if", argument, name, line))
        top.taken |= top.active

    def _holds(self, word: str, argument: str, name: str, line: int) -> bool:
        if word != "if":
            is_defined = argument.strip() in self.macros or argument.strip() in self.given
            return is_defined == (word == "ifdef")
        words = [token.text for token in tokens_of(argument)]
        ready: list[str] = []
        at = 0
        while at < len(words):
            if words[at] == "defined":
                bracket = words[at + 1 : at + 2] == ["("]
                macro_name = words[at + 1 + bracket] if at + 1 + bracket < len(words) else ""
                ready.append(str(int(macro_name in self.macros or macro_name in self.given)))
                at += 4 if bracket else 2
            elif words[at] in ("__has_include", "__has_builtin", "__has_feature", "__has_extension"):
                end = words.index(")", at) if ")" in words[at:] else len(words) - 1
                ready.append("0")
                at = end + 1
            elif words[at] in self.given:
                raise SourceError(
                    f"{name}:{line}: the condition reads {words[at]}, which a launch sets, and the text's macros are "
                    "expanded before: use if constexpr, or a function constant"
                )
            else:
                ready.append(words[at])
                at += 1
        self.words = 0
        expanded = self._expand(ready, frozenset(), 0, f"{name}:{line}")
        try:
            return _Expression(expanded).value() != 0
        except (ValueError, IndexError, ZeroDivisionError) as error:
            raise SourceError(f"{name}:{line}: the condition #if{argument} is not understood") from error

    def _define(self, argument: str, name: str, line: int) -> None:
        head = _HEAD.match(argument)
        if head is None:
            raise SourceError(f"{name}:{line}: #define without a name")
        word, listed, inner, body = head.groups()
        if word in self.given:
            return  # the launch defines this name
        if listed is not None and not argument.strip().startswith(f"{word}("):
            # with a blank before the bracket, the macro has no parameters
            listed, inner, body = None, None, f"{head.group(2)} {body}"
        flat = body.replace("\n", " ")
        # the _ keeps a # at the beginning from being read as a directive
        tokens = tuple(_words(tokens_of(f"_ {flat}")[1:]))
        tokens = tuple(_pasted(tokens))
        if listed is None or inner is None:
            self.macros[word] = _Macro(tokens)
            return
        names = [parameter.strip() for parameter in inner.split(",")] if inner.strip() else []
        variadic = bool(names) and names[-1].endswith("...")
        if variadic:
            names[-1] = names[-1].removesuffix("...").strip() or "__VA_ARGS__"
        self.macros[word] = _Macro(tokens, tuple(names), variadic)

    def _include(self, argument: str, name: str, line: int, depth: int) -> bool:
        """Inserts an included file. Returns False for a header of Metal's library, whose directive stays."""
        match = _INCLUDE.match(argument)
        if match is None:
            raise SourceError(f"{name}:{line}: #include{argument.rstrip()} names no file")
        quoted, library = match.groups()
        header = quoted or library
        for folder in self.folders:
            path = (folder / header).resolve()
            if not path.is_relative_to(folder) or not path.is_file():
                continue
            if path not in self.once:
                try:
                    self.file(read_plain(path).decode(), header, depth + 1, path)
                except (OSError, UnicodeDecodeError) as error:
                    raise SourceError(f"{name}:{line}: {path} cannot be read: {error}") from error
            return True
        if library is not None:
            return False
        where = f"in {', '.join(map(str, self.folders))}" if self.folders else "because no folder is named"
        raise SourceError(
            f'{name}:{line}: #include "{header}" is not found {where}: name its folder in include=. Nothing outside of '
            "these folders is read"
        )

    # Text between directives

    def _text(self, text: str, name: str, line: int, *, active: bool) -> None:
        if not active:
            self.put("\n" * text.count("\n"))
            return
        tokens = tokens_of(text)
        at = position = 0
        while position < len(tokens):
            token = tokens[position]
            macro = self.macros.get(token.text) if token.is_word else None
            if macro is None:
                position += 1
                continue
            end = position + 1
            if macro.parameters is not None:
                if end >= len(tokens) or tokens[end].text != "(":
                    position += 1
                    continue
                end = _closing([part.text for part in tokens], end, f"{name}:{line + token.line - 1}") + 1
            self.put(text[at : token.begin])
            words = _words(tokens[position:end])
            self.words = 0
            expanded = self._expand(words, frozenset(), 0, f"{name}:{line + token.line - 1}")
            last = self.macros.get(expanded[-1]) if expanded else None
            if last is not None and last.parameters is not None and end < len(tokens) and tokens[end].text == "(":
                end = _closing([part.text for part in tokens], end, f"{name}:{line + token.line - 1}") + 1
                words = _words(tokens[position:end])
                expanded = self._expand(words, frozenset(), 0, f"{name}:{line + token.line - 1}")
            self.put(f" {' '.join(expanded)} " + "\n" * text.count("\n", token.begin, tokens[end - 1].end))
            at, position = tokens[end - 1].end, end
        self.put(text[at:])

    # Macros

    def _expand(self, words: Sequence[str], hidden: frozenset[str], depth: int, location: str) -> list[str]:
        """Expands the macros in ``words``, except ``hidden``: the macros whose expansion made these words."""
        if depth > _MOST_NESTED:
            raise SourceError(f"{location}: macros expand to each other more than {_MOST_NESTED} times")
        self.words += len(words)
        if self.words > _MOST_WORDS:
            raise SourceError(f"{location}: a macro expands to more than {_MOST_WORDS} words")
        expanded: list[str] = []
        at = 0
        while at < len(words):
            word = words[at]
            macro = None if word in hidden else self.macros.get(word)
            if macro is None:
                expanded.append(word)
                at += 1
                continue
            if macro.parameters is None:
                expanded += self._expand(_joined(macro.body), hidden | {word}, depth + 1, location)
                at += 1
                last = self.macros.get(expanded[-1]) if expanded else None
                if last is not None and last.parameters is not None and words[at : at + 1] == ["("]:
                    stop = _closing(words, at, location)
                    expanded += self._expand(
                        [expanded.pop(), *words[at : stop + 1]], hidden | {word}, depth + 1, location
                    )
                    at = stop + 1
                continue
            if words[at + 1 : at + 2] != ["("]:
                expanded.append(word)
                at += 1
                continue
            end = _closing(words, at + 1, location)
            arguments = _arguments(words[at + 2 : end], macro, word, location)
            body = self._substituted(macro, arguments, hidden, depth, location)
            # A function-like macro at the end of an expansion takes its arguments from the text after it.
            rest = list(words[end + 1 :])
            last = self.macros.get(body[-1]) if body else None
            if last is not None and last.parameters is not None and rest[:1] == ["("] and body[-1] not in hidden:
                stop = _closing(rest, 0, location)
                body += rest[: stop + 1]
                end += stop + 1
            expanded += self._expand(body, hidden | {word}, depth + 1, location)
            at = end + 1
        return expanded

    def _substituted(
        self, macro: _Macro, arguments: dict[str, list[str]], hidden: frozenset[str], depth: int, location: str
    ) -> list[str]:
        body, words = macro.body, list[str]()
        at = 0
        while at < len(body):
            word = body[at]
            if word == "#" and at + 1 < len(body) and body[at + 1] in arguments:
                words.append('"' + " ".join(arguments[body[at + 1]]).replace("\\", "\\\\").replace('"', '\\"') + '"')
                at += 2
            elif word == "##" and words and at + 1 < len(body):
                right = arguments.get(body[at + 1], [body[at + 1]])
                if words[-1] == "," and not right:
                    words.pop()  # drop the comma in ", ## __VA_ARGS__" if there are no arguments
                elif words[-1] == "," and body[at + 1] == "__VA_ARGS__":
                    words += right
                elif right:
                    words[-1:] = [words[-1] + right[0], *right[1:]]
                at += 2
            elif word in arguments:
                pasted = body[at + 1 : at + 2] == ("##",)
                part = arguments[word] if pasted else self._expand(arguments[word], hidden, depth + 1, location)
                words += part or ([""] if pasted else [])
                at += 1
            else:
                words.append(word)
                at += 1
        return [word for word in words if word]


def _words(tokens: Sequence[Token]) -> list[str]:
    """Returns the texts of tokens. ``>>`` and ``>>=`` become one word, as blanks inside would change their meaning."""
    words: list[str] = []
    for at, token in enumerate(tokens):
        if at and token.text in (">", ">=") and words[-1] == ">" and tokens[at - 1].end == token.begin:
            words[-1] += token.text
        else:
            words.append(token.text)
    return words


def _active(stack: Sequence[_Condition]) -> bool:
    return all(condition.active for condition in stack)


def _pasted(words: Sequence[str]) -> Iterator[str]:
    """Yields the tokens of a macro's text, with the two tokens ``#`` ``#`` joined to ``##``."""
    at = 0
    while at < len(words):
        if words[at] == "#" and words[at + 1 : at + 2] == ("#",):
            yield "##"
            at += 2
        else:
            yield words[at]
            at += 1


def _joined(body: Sequence[str]) -> list[str]:
    """Returns the text of a macro without parameters, with the words beside ``##`` joined."""
    joined: list[str] = []
    at = 0
    while at < len(body):
        if body[at] == "##" and joined and at + 1 < len(body):
            joined[-1] += body[at + 1]
            at += 2
        else:
            joined.append(body[at])
            at += 1
    return joined


def _closing(words: Sequence[str], at: int, location: str) -> int:
    """Returns the index of the bracket that closes the bracket at ``at``."""
    depth = 0
    for end in range(at, len(words)):
        depth += (words[end] == "(") - (words[end] == ")")
        if depth == 0:
            return end
    raise SourceError(f"{location}: the arguments of the macro {words[at - 1]} have no end")


def _arguments(words: Sequence[str], macro: _Macro, name: str, location: str) -> dict[str, list[str]]:
    names = macro.parameters or ()
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if word == "," and depth == 0 and not (macro.variadic and len(parts) == len(names)):
            parts.append([])
        else:
            parts[-1].append(word)
    if parts == [[]] and not names:
        parts = []
    if macro.variadic and len(parts) == len(names) - 1:
        parts.append([])
    if len(parts) != len(names):
        raise SourceError(f"{location}: the macro {name} takes {len(names)} arguments, not {len(parts)}")
    return dict(zip(names, parts, strict=True))


_LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"))
_SUMS, _PRODUCTS = ("+", "-"), ("*", "/", "%")


class _Expression:
    """Evaluates the integer expression of an ``#if``; a name that is not a macro is 0."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(_shifts(words))
        self._at = 0

    def value(self) -> int:
        result = self._choice()
        if self._at != len(self._words):
            self._fail()
        return result

    def _fail(self) -> NoReturn:
        raise ValueError(" ".join(self._words))

    def _next(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _take(self, *words: str) -> str:
        word = self._next()
        if word and word in words:
            self._at += 1
            return word
        return ""

    def _choice(self) -> int:
        value = self._level(0)
        if not self._take("?"):
            return value
        first = self._choice()
        if not self._take(":"):
            self._fail()
        second = self._choice()
        return first if value else second

    def _level(self, level: int) -> int:
        signs = (*_LEVELS, _SUMS, _PRODUCTS)
        if level == len(signs):
            return self._unary()
        result = self._level(level + 1)
        while sign := self._take(*signs[level]):
            result = _applied(sign, result, self._level(level + 1))
        return result

    def _unary(self) -> int:
        sign = self._take("!", "-", "+", "~")
        if sign:
            value = self._unary()
            return {"!": int(not value), "-": -value, "+": value, "~": ~value}[sign]
        if self._take("("):
            value = self._choice()
            if not self._take(")"):
                self._fail()
            return value
        word = self._next()
        self._at += 1
        if word[:1].isdigit():
            return int(word.rstrip("uUlL").replace("'", ""), 0)
        if not re.fullmatch(r"[A-Za-z_]\w*", word):
            self._fail()
        return int(word == "true")


def _shifts(words: Sequence[str]) -> Iterator[str]:
    """Yields the words with two ``>`` tokens joined to ``>>``."""
    at = 0
    while at < len(words):
        double = words[at : at + 2] == [">", ">"]
        yield ">>" if double else words[at]
        at += 1 + double


def _applied(sign: str, left: int, right: int) -> int:
    match sign:
        case "||":
            return int(bool(left) or bool(right))
        case "&&":
            return int(bool(left) and bool(right))
        case "|":
            return left | right
        case "^":
            return left ^ right
        case "&":
            return left & right
        case "==":
            return int(left == right)
        case "!=":
            return int(left != right)
        case "<":
            return int(left < right)
        case ">":
            return int(left > right)
        case "<=":
            return int(left <= right)
        case ">=":
            return int(left >= right)
        case "<<":
            return left << min(right, 64)
        case ">>":
            return left >> min(right, 64)
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        case _:
            return left - right * (abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))
