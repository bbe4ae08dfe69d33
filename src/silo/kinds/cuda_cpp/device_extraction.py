"""Extracts device code from files with host code: drops host functions and declarations that no kernel needs.

The texts are read as tokens. A dropped declaration leaves its lines empty, so other lines keep their numbers. All
declarations of one name are kept or dropped together, so the rest has the same meaning as before, or does not compile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from silo.kinds.cuda_cpp.cuda_text import Token, TokenKind, closing, tokens_of

__all__ = ["device_code", "device_texts"]

_DEVICE = frozenset(("__global__", "__device__", "__constant__", "__shared__", "__managed__"))
_KEPT_FUNCTIONS = frozenset(("__global__", "__device__", "constexpr", "consteval"))
_CLASSES = frozenset(("struct", "class", "union", "enum"))
_KEPT_DECLARATIONS = _DEVICE | _CLASSES | {
    *("using", "typedef", "template", "static_assert", "constexpr", "const", "concept", "namespace")
}  # fmt: skip
_VIRTUAL = frozenset(("virtual", "override", "final"))
_AFTER_PARAMETERS = frozenset(("const", "noexcept", "override", "final", "try"))
_NO_PARAMETERS = frozenset(
    ("__launch_bounds__", "__attribute__", "__align__", "alignas", "decltype", "sizeof", "noexcept")
)
_NO_FUNCTION = frozenset(("using", "typedef", "static_assert", "struct", "class", "union", "enum"))
_ACCESS = frozenset(("public", "private", "protected"))
# words that mark declarations which other declarations use without naming them
_CONTEXT = ("static_assert", "operator")
_ALWAYS = frozenset(("begin", "end"))  # loops over ranges call these functions without naming them
_PLAIN = frozenset(
    [
        *("alignas", "auto", "bool", "char", "class", "const", "consteval", "constexpr", "double", "enum", "explicit"),
        *(
            "extern",
            "final",
            "float",
            "friend",
            "inline",
            "int",
            "long",
            "mutable",
            "namespace",
            "noexcept",
            "operator",
        ),
        *("short", "signed", "static", "struct", "template", "this", "typedef", "typename", "union", "unsigned"),
        *("using", "virtual", "void", "volatile", "decltype", "sizeof", "__align__", "__attribute__", "__constant__"),
        *("__device__", "__forceinline__", "__global__", "__host__", "__inline__", "__launch_bounds__"),
        *("__managed__", "__noinline__", "__restrict__", "__shared__"),
    ]
)
_SCOPES = ("std", "cuda", "cub", "thrust", "cooperative_groups", "nvcuda")  # namespaces of the toolkit
_NO_PROTOTYPE = _CLASSES | {"using", "typedef", "template", "static_assert", "concept", "friend"}
_WORD = re.compile(r"[A-Za-z_]\w*")
_DECLARES = _CLASSES | {"typedef", "using", "constexpr", "const"}
_STAYS = re.compile(r"(?:#|%:)\s*(?:if|el|endif|define|undef|error)")
_INSTANCE = re.compile(r"\([^)]*\)(?:\s|\\)*template\b(?!\s*<)")
_MACRO = re.compile(r"(?:#|%:)\s*define\s+(\w+)(.*)", re.DOTALL)


_CHAIN = re.compile(r"\w+(?:\s*(?:##)\s*\w+)+")


class _Edit(NamedTuple):
    begin: int
    end: int
    text: str | None  # None: the part is dropped, and its lines become empty


@dataclass
class _Item:
    """A declaration at file or namespace scope.

    ``head``: its words outside of bodies and initializers. ``names``: the words that it may declare; empty if other
    declarations cannot name it. ``words``: all of its words. ``kept``: whether it is device code at all. ``edits``: the
    changes within it if it is kept, each with a position and a new text. ``scope``: for a ``using`` declaration, the
    namespace or class of the name; "" for any other declaration.
    """

    begin: int
    end: int
    kept: bool
    head: set[str] = field(default_factory=set[str])
    names: set[str] = field(default_factory=set[str])
    words: set[str] = field(default_factory=set[str])
    edits: list[_Edit] = field(default_factory=list["_Edit"])
    scope: str = ""


def device_code(text: str) -> str:
    r"""Returns a text without its host functions and host variables. Line numbers stay the same.

    A function stays if it is ``__global__``, ``__device__`` or ``constexpr``, or if a macro marks it. A variable stays
    if it is a constant or in device memory. Explicit instantiations are dropped: the entry instantiates its template.

    >>> device_code("int f() { return 1; }\n__global__ void k(int *p) { *p = 1; }\nint main() {\n k<<<1, 1>>>(0); }")
    '\n__global__ void k(int *p) { *p = 1; }\n\n'
    """
    read = _Reader(tokens_of(text), _macros([text]))
    return _edited(text, [edit for item in read.items() for edit in _edits(item, is_needed=item.kept)])


def device_texts(text: str, headers: Mapping[str, str], used: Iterable[str], entry: str) -> tuple[str, dict[str, str]]:
    """Returns the device code of a text and its headers that the entry needs.

    A declaration is needed if it is named by a word of the entry's kernel, by a word in ``used``, by a directive, or by
    another needed declaration.

    Args:
        text: the main text.
        headers: the text of each header by name.
        used: further words that name declarations.
        entry: the name of the kernel; if no declaration has it, all kernels are needed.
    """
    texts = {"": text, **{f"/{name}": own for name, own in headers.items()}}
    macros = _macros(texts.values())
    tokens = {name: list(tokens_of(own)) for name, own in texts.items()}
    items = {name: list(_Reader(own, macros).items()) for name, own in tokens.items()}
    # The namespaces and classes that these texts or the toolkit declare. A ``using`` of a name in any other scope is
    # dropped, because the header of that scope was left out.
    scopes = {*_SCOPES, *(name for own in items.values() for part in own for name in part.names - {part.scope})}
    scopes |= {second.text for own in tokens.values() for first, second in pairwise(own) if first.text == "namespace"}
    for part in (part for own in items.values() for part in own if part.scope):
        part.kept = part.kept and part.scope in scopes
    wanted_names, declared = {*_ALWAYS, *used}, [part for own in items.values() for part in own if part.kept]
    for part in (part for own in tokens.values() for part in own if part.kind is TokenKind.DIRECTIVE):
        macro = _MACRO.match(part.text)
        if macro is None:
            wanted_names |= {*_WORD.findall(part.text)}
        else:
            words = {*_WORD.findall(macro[2]), *_joined(macro[2], [name for item in declared for name in item.names])}
            declared.append(_Item(part.begin, part.end, kept=True, names={macro[1]}, words=words))
    needed = _needed(declared, wanted_names, entry)
    extracted = {
        name: _edited(own, [edit for part in items[name] for edit in _edits(part, is_needed=id(part) in needed)])
        for name, own in texts.items()
    }
    return extracted.pop(""), {name[1:]: own for name, own in extracted.items()}


def _joined(macro: str, names: Iterable[str]) -> set[str]:
    """Returns the names in ``names`` that a macro may make by ``##``.

    ``macro`` is the macro's definition without its name.

    >>> sorted(_joined("(T, f) void k_##T() { run_##T##_##f(0); }", ["run_int_g", "runs", "k_a", "f"]))
    ['k_a', 'run_int_g']
    """
    if "##" not in macro:
        return set()
    head, _, body = macro.partition(")") if macro.startswith("(") else ("", "", macro)
    parameters = {*_WORD.findall(head)}
    joined: set[str] = set()
    for chain in _CHAIN.findall(body):
        parts = [word for word in _WORD.findall(chain) if word not in parameters]
        if parts:
            pattern = r"\w*".join(re.escape(word) if word not in parameters else "" for word in _WORD.findall(chain))
            joined |= {name for name in names if re.fullmatch(pattern, name)}
    return joined


def _needed(items: Sequence[_Item], wanted: set[str], entry: str) -> set[int]:
    """Returns the ids of the items that are needed, directly or by other items."""
    kernels = [item for item in items if "__global__" in item.head]
    chosen = [kernel for kernel in kernels if entry in kernel.names] or kernels
    waiting = [*chosen, *(item for item in items if not item.names and not item.head & {*_CONTEXT})]
    needed = {id(candidate) for candidate in waiting}
    by_name: dict[str, list[_Item]] = {}
    for item in items:
        for name in item.names:
            by_name.setdefault(name, []).append(item)
    fresh = set(wanted)
    while True:
        for candidate in waiting:
            fresh |= candidate.words
        waiting = [candidate for word in fresh for candidate in by_name.pop(word, ()) if id(candidate) not in needed]
        fresh = set[str]()
        if not waiting:
            # An operator is needed if all types of its parameters are needed, an assertion if all of its words are.
            unnamed = [item for item in items if not item.names and id(item) not in needed]
            waiting = [candidate for candidate in unnamed if by_name.keys().isdisjoint(_deciding(candidate))]
        if not waiting:
            return needed
        needed |= {id(candidate) for candidate in waiting}


def _deciding(item: _Item) -> set[str]:
    return item.words if "static_assert" in item.head else item.head


@dataclass(frozen=True)
class _Macros:
    """Names of macros: those that mark device code, have parameters, declare types, or instantiate templates."""

    device: frozenset[str]
    calls: frozenset[str]
    types: frozenset[str]
    instances: frozenset[str]


def _macros(texts: Iterable[str]) -> _Macros:
    """Returns the macros of the texts.

    A macro marks device code if its text contains ``__device__`` or the like, or the name of another such macro.
    """
    bodies = [
        (match[1], match[2], set(_WORD.findall(match[2])))
        for text in texts
        for token in tokens_of(text)
        if token.kind is TokenKind.DIRECTIVE and (match := _MACRO.match(token.text)) is not None
    ]
    marking: set[str] = set()
    marks = set(_DEVICE)
    while more := {name for name, _, words in bodies if name not in marking and words & marks}:
        marking |= more
        marks |= more
    return _Macros(
        frozenset(marking),
        frozenset(name for name, body, _ in bodies if body.startswith("(")),
        frozenset(name for name, body, words in bodies if words & _DECLARES and "<<<" not in body),
        frozenset(name for name, body, _ in bodies if _INSTANCE.match(body) is not None),
    )


def _edits(item: _Item, *, is_needed: bool) -> list[_Edit]:
    return item.edits if is_needed else [_Edit(item.begin, item.end, None)]


def _edited(text: str, edits: Sequence[_Edit]) -> str:
    parts: list[str] = []
    at = 0
    for begin, end, instead in edits:
        parts += [text[at:begin], _blank(text[begin:end]) if instead is None else instead]
        at = end
    return "".join((*parts, text[at:]))


def _blank(text: str) -> str:
    """Returns the lines of a dropped text, with those directives that conditions and macros need."""
    if "#" not in text and "%:" not in text:
        return "\n" * text.count("\n")
    parts: list[str] = []
    at = 0
    for token in tokens_of(text):
        if token.kind is TokenKind.DIRECTIVE and _STAYS.match(token.text) is not None:
            parts += ["\n" * text.count("\n", at, token.begin), token.text]
            at = token.end
    return "".join((*parts, "\n" * text.count("\n", at)))


class _Reader:
    """Reads declarations from tokens."""

    def __init__(self, tokens: Iterable[Token], macros: _Macros) -> None:
        self._tokens = list(tokens)
        self._plain = [token for token in self._tokens if token.kind is not TokenKind.DIRECTIVE]
        self._macros = macros

    def items(self) -> Iterable[_Item]:
        """Yields the declarations of the text, in order."""
        return self._items(0, len(self._plain), members=False)

    def _items(self, at: int, end: int, *, members: bool) -> Iterable[_Item]:
        words = self._plain
        while at < end:
            text = words[at].text
            if text in (";", "}"):
                at += 1
            elif members and text in _ACCESS:
                at += 2 if at + 1 < end and words[at + 1].text == ":" else 1
            else:
                item, at = self._item(at, end, members=members)
                if item is not None:
                    yield item

    def _item(self, start: int, end: int, *, members: bool) -> tuple[_Item | None, int]:
        """Reads one declaration; returns it (None for the head of a namespace) and the index after it."""
        words = self._plain
        if words[start].text in self._macros.calls and start + 1 < end and words[start + 1].text == "(":
            after = min(closing(words, start + 1), end)
            if after == end or words[after].text not in ("{", ":", "::", "(", "->", "=", ","):
                return self._invocation(start, after), after
        head: set[str] = set()
        outer: set[str] = set()  # words of the head that are outside of parentheses
        called: set[str] = set()  # words that come before a parenthesis
        at = start
        parameters = initialized = assigned = bases = False
        body: tuple[int, int] | None = None
        while at < end:
            text = words[at].text
            if text == ";":
                at += 1
                break
            if text == "}":
                break
            if text == "{":
                if "namespace" in head or ("extern" in head and words[at - 1].kind is TokenKind.STRING):
                    return None, at + 1
                after = min(closing(words, at), end)
                if at == start:
                    at = after
                    break
                before = words[at - 1]
                is_name = before.kind is TokenKind.WORD and before.text not in _AFTER_PARAMETERS
                is_class = bool(head & _CLASSES) and (is_name or bases or not parameters)
                parameters = parameters and not is_class
                if parameters and not assigned:
                    if initialized and after < end and words[after].text in ("{", ","):
                        at = after  # a brace in a constructor's initializer list: a{1}
                        continue
                    body = (at, after)
                    at = after
                    break
                if is_class and body is None and not assigned:
                    body = (at, after)
                at = after
                continue
            if text in ("(", "["):
                after = min(closing(words, at), end)
                if text == "(":
                    called.add(words[at - 1].text if at > start else "")
                    parameters = parameters or at == start or words[at - 1].text not in _NO_PARAMETERS
                head |= {word.text for word in words[at:after] if word.kind is TokenKind.WORD}
                at = after
                continue
            if text == "<" and at > start and words[at - 1].text == "template":
                at = self._angle(at, end)
                continue
            if text == "operator":
                head.add(text)
                at += 1
                while at < end and words[at].text not in ("(", ";"):
                    at += 1
                if at + 2 < end and words[at + 1].text == ")":
                    at += 2
                continue
            if text == "=":
                assigned = True
            elif text == ":":
                initialized, bases = initialized or parameters, bases or not parameters
            if not assigned:
                head.add(text)
                outer.add(text)
            at += 1
        item = self._declared_item(
            start, at, head, called, body, parameters=parameters, members=members, assigned=assigned
        )
        if parameters and body is None and not members and not assigned and called - _PLAIN:
            # A function without a body. It may have const parameters, which do not make it a constant.
            marked = (head | called) & (_KEPT_FUNCTIONS | self._macros.device)
            item.kept = item.kept and bool(marked or outer & _NO_PROTOTYPE)
        return item, at

    def _invocation(self, start: int, end: int) -> _Item:
        """Returns the item of a macro invocation that stands for a declaration."""
        words = self._plain[start:end]
        all_words = {word.text for word in words if word.kind is TokenKind.WORD}
        item = _Item(words[0].begin, words[-1].end, kept=True, head={words[0].text}, words=all_words - _PLAIN)
        if words[0].text in self._macros.instances:
            item.kept = False
        elif words[0].text not in self._macros.device:
            item.names = item.words - {words[0].text}
            item.kept = bool(item.names) and words[0].text in self._macros.types
        return item

    def _angle(self, at: int, end: int) -> int:
        depth = 0
        for index in range(at, end):
            depth += (self._plain[index].text == "<") - (self._plain[index].text == ">")
            if depth == 0:
                return index + 1
            if self._plain[index].text in ("{", ";"):
                return index
        return end

    def _declared_item(
        self,
        start: int,
        end: int,
        head: set[str],
        called: set[str],
        body: tuple[int, int] | None,
        *,
        parameters: bool,
        members: bool,
        assigned: bool,
    ) -> _Item:
        words = self._plain[start:end]
        all_words = {word.text for word in words if word.kind is TokenKind.WORD}
        item = _Item(words[0].begin, words[-1].end, kept=True, head=head, words=all_words - _PLAIN)
        marked = bool((head | called) & (_KEPT_FUNCTIONS | self._macros.device))
        function = parameters and body is not None
        first = words[0].text
        if function:
            item.kept = marked or (members and bool(head & _VIRTUAL))
        elif members:
            declared = parameters and not assigned and bool(called & all_words - _PLAIN)
            item.kept = marked or not declared or bool(head & (_VIRTUAL | _NO_FUNCTION))
        elif first == "template" and len(words) > 1 and words[1].text != "<":
            item.kept = False  # an explicit instantiation
        else:
            item.kept = marked or bool(head & _KEPT_DECLARATIONS)
        if item.kept and function and "constexpr" in head and not head & (_DEVICE | self._macros.device):
            offset = next(word.begin for word in words if word.text == "constexpr")
            item.edits.append(_Edit(offset, offset, "__host__ __device__ "))  # like nvcc's --expt-relaxed-constexpr
        if not item.kept or members:
            return item
        if body is not None and not function and "enum" not in head:
            inner = self._items(body[0] + 1, body[1] - 1, members=True)
            item.edits += [edit for inner_item in inner for edit in _edits(inner_item, is_needed=inner_item.kept)]
            gone = [edit for edit in item.edits if edit.text is None]
            item.words = {
                word.text
                for word in words
                if word.kind is TokenKind.WORD and not any(edit.begin <= word.begin < edit.end for edit in gone)
            } - _PLAIN
        item.names = self._names(words, head, called, body, start, function=function)
        texts = [word.text for word in words]
        if first == "using" and "::" in texts and texts[1] != "namespace":
            before = texts[texts.index("::") - 1]
            item.scope = before if _WORD.fullmatch(before) and before != "typename" else ""
        return item

    def _names(
        self,
        tokens: Sequence[Token],
        head: set[str],
        called: set[str],
        body: tuple[int, int] | None,
        start: int,
        *,
        function: bool,
    ) -> set[str]:
        """Returns the words that a declaration may declare.

        A word too many is harmless: it only keeps declarations that could be dropped. If no word is found, other rules
        decide whether the declaration is kept.
        """
        if "operator" in head or "static_assert" in head:
            return set()
        texts = [word.text for word in tokens]
        if texts[:2] == ["using", "namespace"] or texts[:1] == ["namespace"]:
            return set()
        if function or (called - _PLAIN and not head & {"using", "typedef"} and body is None and "=" not in texts):
            return {item for item in called if item not in _PLAIN and _WORD.fullmatch(item)} | _owners(tokens)
        if body is not None and "enum" in head:
            return {word.text for word in tokens if word.kind is TokenKind.WORD} - _PLAIN
        if body is not None:
            first, last = body[0] - start, body[1] - start
            own = [word for index, word in enumerate(tokens) if index < first or index >= last]
            before = [item.text for item in own[:first]]
            bases = before.index(":") if ":" in before else len(before)
            own = own[:bases] + own[first:]
        else:
            stop = texts.index("=") if "=" in texts else len(texts)
            own = list(tokens[:stop])
        return {item.text for item in _without_template(own) if item.kind is TokenKind.WORD} - _PLAIN - {"std", "cuda"}


def _owners(tokens: Sequence[Token]) -> set[str]:
    """Returns the classes whose members a function defines outside of the class: ``A`` for ``A::f() {}``."""
    owners: set[str] = set()
    for word, sign in pairwise(tokens):
        if word.text in ("(", "{"):
            break
        if sign.text == "::" and word.kind is TokenKind.WORD:
            owners.add(word.text)
    return owners - {"std", "cuda"}


def _without_template(tokens: Sequence[Token]) -> list[Token]:
    """Returns the words after a template's parameter list."""
    if len(tokens) < 2 or tokens[0].text != "template" or tokens[1].text != "<":
        return list(tokens)
    depth = 0
    for index in range(1, len(tokens)):
        depth += (tokens[index].text == "<") - (tokens[index].text == ">")
        if depth == 0:
            return _without_template(tokens[index + 1 :])
    return list(tokens)
