"""A compile job of the emulator, made from a variant: a kernel's text as C++, and the arguments of its function.

Line numbers stay the same, so that clang's messages name the lines of the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, cast

from silo.core.device import Target
from silo.core.json_reader import read_bool, read_integers, read_list, read_natural, read_object, read_text
from silo.core.launch_info import AbiType, LayoutSlot
from silo.core.signature import ParameterKind
from silo.core.values import JSON, malformed
from silo.core.variant import CompileJob, Variant
from silo.errors import CompileError, SourceError
from silo.frozen import frozen, replace
from silo.kinds.metal.clang import digest_of_headers, includes_headers
from silo.kinds.metal.front.metal_source import MetalSource
from silo.kinds.metal.front.parser import MslParameter, Token, TokenKind, tokens_of
from silo.kinds.metal.front.variant_text import metal_text
from silo.kinds.metal.metal_declaration import EMULATOR

__all__ = ["BufferRole", "EmulatorJob", "MetalArgument", "lowered_job", "may_wait", "rewritten"]


# ---- Translating Metal's language to C++, for differences that the headers cannot hide ----


_OBJECT_SPACES = frozenset({"thread", "device", "threadgroup", "constant"})
_AFTER_PARAMETERS = _OBJECT_SPACES | {"const", "noexcept"}
_CONTROL = frozenset({"if", "for", "while", "switch", "catch", "return", "(", ",", "="})
_BEFORE_STATEMENT = frozenset({"{", "}", ";", ")"})
_ENDS_DECLARATOR = frozenset({"[", ",", ";", "=", "(", "{"})
# The number of brackets that a sign opens; negative if it closes brackets.
_OPENED = {"[": 1, "(": 1, "{": 1, "[[": 2, "]": -1, ")": -1, "}": -1, "]]": -2}


class _Edit(NamedTuple):
    """A replacement for the text from ``begin`` up to ``end``."""

    begin: int
    end: int
    text: str


def rewritten(text: str) -> str:
    """Returns a text in Metal's language, whose function constants have values, translated to C++."""
    words = tokens_of(text)
    edits: list[_Edit] = []
    members = {
        **_functions_of_one_space(text, words),
        **_types_of_one_space(text, words),
        **_defaulted_constructors(text, words),
    }
    at = 0
    while at < len(words):
        word = words[at]
        if at in members:
            edit, at = members[at]
            edits.append(edit)
            continue
        if word.text == "[[":
            end = _balanced(words, at)
            edits.append(_blank(text, word.begin, words[end - 1].end))
            at = end
            continue
        if word.text == "coherent" and at + 1 < len(words) and words[at + 1].text in ("(", *_OBJECT_SPACES):
            end = _balanced(words, at + 1) if words[at + 1].text == "(" else at + 1
            edits.append(_blank(text, word.begin, words[end - 1].end))
            at = end
            continue
        if word.kind is TokenKind.NUMBER:
            edits += _number(word, 0)
        elif word.kind is TokenKind.DIRECTIVE and word.text[1:].lstrip().startswith("define"):
            edits += [edit for token in tokens_of(word.text[1:]) for edit in _number(token, word.begin + 1)]
        elif word.text == "threadgroup" and at > 0 and words[at - 1].text in _BEFORE_STATEMENT:
            declaration = _threadgroup_declaration(text, words, at)
            if declaration is not None:
                edit, at = declaration
                edits.append(edit)
                continue
        at += 1
    return _applied(text, sorted(edits))


def _number(word: Token, start: int) -> list[_Edit]:
    """Returns the edits for a number that C++ reads differently: ``1.0`` is a float in Metal, and ``1.0bf`` a bfloat.

    Clang's flag for float literals has no effect in templates: in an instance of a template, the literal is a double
    again.
    """
    text, hexadecimal = word.text, word.text[:2].lower() == "0x"
    if word.kind is not TokenKind.NUMBER:
        return []
    if text[-2:] in ("bf", "BF") and not hexadecimal:
        return [_Edit(start + word.begin, start + word.end, f"bfloat({text[:-2]}f)")]
    exponent = "pP" if hexadecimal else "eE."
    if text[-1].isalpha() and not (hexadecimal and set("pP") & set(text)):
        return []
    if set(exponent) & set(text) and text[-1] not in "fFhHlL":
        return [_Edit(start + word.end, start + word.end, "f")]
    return []


def _functions_of_one_space(text: str, tokens: Sequence[Token]) -> dict[int, tuple[_Edit, int]]:
    """Returns edits that remove overloads of functions which differ only in address spaces, except the first.

    Without address spaces, ``f(device T &x) {}`` and ``f(thread T &x) {}`` are the same function, as are ``f() device
    {}`` and ``f() thread {}``. Overloads with different bodies stay, and clang reports the second as a redefinition.
    The result maps the index of the first token that an edit replaces to the edit and the index after the last token.
    """
    edits: dict[int, tuple[_Edit, int]] = {}
    bodies: dict[tuple[int, str], str] = {}
    opened: list[int] = []  # indices of the open braces
    pairs = _brackets(tokens)
    for at, word in enumerate(tokens):
        if word.text == "{":
            opened.append(at)
        elif word.text == "}" and opened:
            opened.pop()
        if word.text != "(" or at == 0 or tokens[at - 1].text in _CONTROL or at not in pairs:
            continue
        after = pairs[at] + 1
        own: list[int] = []  # indices of the address spaces after the parameters, which apply to ``this``
        while after < len(tokens) and tokens[after].text in _AFTER_PARAMETERS:
            own += [after] if tokens[after].text in _OBJECT_SPACES else []
            after += 1
        defaulted = [word.text for word in tokens[after : after + 2]] == ["=", "default"]
        ends = ("{", ":", ";", "=") if own or defaulted else ("{",)
        if after >= len(tokens) or tokens[after].text not in ends:
            continue
        begin = at
        while begin > 0 and tokens[begin - 1].text not in (";", "}", "{", "("):
            begin = pairs[begin - 1] if tokens[begin - 1].text == ")" else begin - 1
        head = [word.text for word in tokens[begin:after]]
        if begin == at or not (defaulted or _OBJECT_SPACES & set(head)):
            continue
        end = after
        while end < len(tokens) and tokens[end].text not in ("{", ";"):
            end = pairs.get(end, end) + 1
        end = min(pairs.get(end, end) + 1, len(tokens))
        plain = _without_spaces([word.text for word in tokens[begin : pairs[at] + 1]])
        plain += " const" * ("const" in head[pairs[at] + 1 - begin :])
        key = (opened[-1] if opened else -1, plain)
        body = " ".join(word.text for word in tokens[after:end] if word.text not in _OBJECT_SPACES)
        if key not in bodies:
            bodies[key] = body
            edits.update({index: (_blank(text, tokens[index].begin, tokens[index].end), index + 1) for index in own})
        elif bodies[key] == body:
            edits[begin] = (_blank(text, tokens[begin].begin, tokens[end - 1].end), end)
        else:
            edits.update({index: (_blank(text, tokens[index].begin, tokens[index].end), index + 1) for index in own})
    return edits


def _defaulted_constructors(text: str, tokens: Sequence[Token]) -> dict[int, tuple[_Edit, int]]:
    """Returns edits that remove ``Name() = default;`` from types without other constructors.

    Such a type is an aggregate in Metal's C++17, but not in the C++20 of the emulator.
    """
    edits: dict[int, tuple[_Edit, int]] = {}
    pairs = _brackets(tokens)
    for at, word in enumerate(tokens):
        if word.text not in ("struct", "class") or at + 1 >= len(tokens) or not tokens[at + 1].is_word:
            continue
        opening = at + 2
        while opening < len(tokens) and tokens[opening].text not in ("{", ";", "(", ")", "}", "="):
            opening += 1
        if opening not in pairs or tokens[opening].text != "{":
            continue
        own = list(_constructors(tokens, pairs, tokens[at + 1].text, opening))
        if all(span is not None for span in own):
            for begin, end in filter(None, own):
                edits[begin] = (_blank(text, tokens[begin].begin, tokens[end - 1].end), end)
    return edits


def _constructors(
    tokens: Sequence[Token], pairs: Mapping[int, int], name: str, opening: int
) -> Iterator[tuple[int, int] | None]:
    """Yields the first index and the end of each ``name() = default;`` in a class, None for other constructors."""
    position = begin = opening + 1
    while position < pairs[opening]:
        word = tokens[position].text
        if word == name and tokens[position - 1].text not in ("~", "::"):
            following = position + 1
            while following < pairs[opening] and tokens[position + 1].text == "<" and tokens[following - 1].text != ">":
                following += 1
            if tokens[following].text == "(":
                end = pairs[following] + 1
                while tokens[end].text in _AFTER_PARAMETERS:
                    end += 1
                tail = [word.text for word in tokens[end : end + 3]]
                plain = pairs[following] == following + 1 and tail == ["=", "default", ";"]
                yield (begin, end + 3) if plain else None
                position = end
                continue
        position = pairs[position] + 1 if word in ("(", "[", "{") and position in pairs else position + 1
        if tokens[position - 1].text in (";", "}", ":"):
            begin = position


def _without_spaces(words: Sequence[str]) -> str:
    """Returns the words of a declaration in C++: ``constant`` becomes ``const``, other address spaces are removed."""
    plain_words: list[str] = []
    for word in words:
        plain = "const" if word == "constant" else word
        if plain not in _OBJECT_SPACES and not (plain == "const" and plain_words[-1:] == ["const"]):
            plain_words.append(plain)
    return " ".join(plain_words)


def _types_of_one_space(text: str, tokens: Sequence[Token]) -> dict[int, tuple[_Edit, int]]:
    """Returns edits that remove specializations of types which differ only in address spaces, except the first.

    Without address spaces, ``template <class T> struct Of<device T*> {}`` and ``struct Of<thread T*> {}`` are the same
    specialization. The result has the form of :func:`_functions_of_one_space`.
    """
    edits: dict[int, tuple[_Edit, int]] = {}
    bodies: dict[str, str] = {}
    pairs = _brackets(tokens)
    for at, word in enumerate(tokens):
        if word.text not in ("struct", "class") or at == 0 or tokens[at - 1].text != ">":
            continue
        begin = at
        while begin > 0 and tokens[begin - 1].text not in (";", "}", "{"):
            begin -= 1
        opening = at
        while opening < len(tokens) and tokens[opening].text not in ("{", ";"):
            opening += 1
        head = [word.text for word in tokens[begin:opening]]
        close = pairs.get(opening, len(tokens))
        if not _OBJECT_SPACES & set(head) or close + 1 >= len(tokens) or tokens[close + 1].text != ";":
            continue
        plain = _without_spaces(head)
        body = " ".join(word.text for word in tokens[opening:close])
        if bodies.get(plain) == body:
            edits[begin] = (_blank(text, tokens[begin].begin, tokens[close + 1].end), close + 2)
        bodies.setdefault(plain, body)
    return edits


def _brackets(tokens: Sequence[Token]) -> dict[int, int]:
    """Returns for the index of each round, square or curly bracket the index of the matching one."""
    pairs: dict[int, int] = {}
    stack: list[int] = []
    for at, word in enumerate(tokens):
        if word.text in ("(", "[", "{"):
            stack.append(at)
        elif word.text in (")", "]", "}") and stack:
            pairs[stack[-1]] = at
            pairs[at] = stack.pop()
    return pairs


def may_wait(text: str) -> bool:
    """Whether the threads of a group may wait for each other, judged by the names in the text.

    >>> may_wait("kernel void f(device float *x) { x[0] = 1; threadgroup_barrier(mem_flags::mem_none); }")
    True
    >>> may_wait("kernel void f(device float *x, uint i [[thread_position_in_threadgroup]]) { x[i] = 1; }")
    False
    """
    words = tokens_of(text)
    at = 0
    while at < len(words):
        word = words[at]
        if word.text == "[[":
            at = _balanced(words, at)
            continue
        if word.kind is TokenKind.WORD and word.text.startswith(
            ("threadgroup", "simd", "quad_", "matmul2d", "cooperative")
        ):
            return True
        at += 1
    return False


def _blank(text: str, begin: int, end: int) -> _Edit:
    return _Edit(begin, end, " " + "\n" * text.count("\n", begin, end))


def _balanced(tokens: Sequence[Token], at: int) -> int:
    """Returns the index after the bracket that closes the bracket at ``at``."""
    depth = 0
    while at < len(tokens):
        sign = tokens[at].text
        depth += _OPENED.get(sign, 0)
        at += 1
        if depth <= 0:
            break
    return at


def _threadgroup_declaration(text: str, tokens: Sequence[Token], at: int) -> tuple[_Edit, int] | None:
    """Returns the edit that translates a declaration of threadgroup variables at ``at``, and the index after it.

    Returns None for the declaration of a pointer.
    """
    first = at + 1
    angle = 0
    end = first
    while end < len(tokens):
        sign = tokens[end].text
        angle += (sign == "<") - (sign == ">")
        if angle == 0 and sign in _ENDS_DECLARATOR:
            break
        if angle == 0 and sign in ("*", "&", ")"):
            return None
        end += 1
    if end - 1 <= first or end == len(tokens):
        return None
    kind = text[tokens[first].begin : tokens[end - 2].end]
    declarations: list[str] = []
    name = end - 1
    while True:
        at = name + 1
        while at < len(tokens) and tokens[at].text == "[":
            at = _balanced(tokens, at)
        dimensions = text[tokens[name].end : tokens[at - 1].end] if at > name + 1 else ""
        declarations.append(_declared(tokens[name].text, " ".join(kind.split()), " ".join(dimensions.split())))
        if at >= len(tokens) or tokens[at].text not in (",", ";"):
            return None  # clang will report the error
        if tokens[at].text == ";":
            break
        name = at + 1
    begin, end = tokens[first - 1].begin, tokens[at].begin
    return _Edit(begin, end, "; ".join(declarations) + "\n" * text.count("\n", begin, end)), at


def _declared(name: str, kind: str, dimensions: str) -> str:
    array = f"silo_metal::threadgroup_array<metal::type_identity_t<{kind} {dimensions}>>"
    return f'auto &{name} = {array}("{name}", [] {{}}, silo_metal::Place::here())'


def _applied(text: str, edits: Sequence[_Edit]) -> str:
    parts: list[str] = []
    at = 0
    for edit in edits:
        parts += [text[at : edit.begin], edit.text]
        at = edit.end
    return "".join((*parts, text[at:]))


# ---- A compile job of the emulator: a kernel's text as C++, and the arguments of its function ----


class BufferRole(Enum):
    """The kind of value that a launch passes for one argument of the kernel's function."""

    POINTER = "pointer"  # an array: `device T*`, `constant T*`
    REFERENCE = "reference"  # the contents of an array: `device T&`, a struct in `constant T&`
    VALUE = "value"  # a number: `constant T&` with a scalar type T
    THREADGROUP = "threadgroup"  # threadgroup memory of a size that the launch sets
    POSITION = "position"  # a position of the thread, or a size, according to the parameter's attribute


@frozen
class MetalArgument:
    """One argument of the kernel's function.

    ``text`` is, for a value, its type in the text (``uint``), and for a position its attribute
    (``thread_position_in_grid``); "" for other arguments. ``number`` is the layout slot of an array or a value, or the
    bytes of threadgroup memory.
    """

    role: BufferRole
    name: str
    text: str = ""
    number: int = 0

    def to_json(self) -> JSON:
        """Returns the canonical form: ``[role, name, text, number]``."""
        return [self.role.value, self.name, self.text, self.number]

    @classmethod
    def from_json(cls, data: JSON) -> MetalArgument:
        """The inverse of :meth:`to_json`; raises ``ValueError`` for any other data."""
        match read_list(data, "an argument of a kernel's function"):
            case [str() as role, str() as name, str() as text, number]:
                return cls(BufferRole(role), name, text, read_natural(number, "the number of an argument"))
            case _:
                raise malformed("an argument of a kernel's function", data)


@frozen
class EmulatorJob:
    """The inputs from which a worker makes a kernel's shared object.

    ``source`` is the text as C++, with the same lines as ``file``; ``function`` is the kernel's C++ expression
    (``add``, ``add<float>``). ``group`` is the shape of a threadgroup. ``waits``: threads may wait for each other; if
    it is False, but the linker finds that they wait, the job is compiled again with True. ``cut``: the grid may end
    within a threadgroup, and the last three slots of the layout are the grid's extents in threads along x, y and z.
    ``headers`` is the digest of torch's headers if the text includes any, else "". ``chunk`` and ``threads`` become
    options of the launch info.
    """

    source: str
    file: str
    function: str
    arguments: tuple[MetalArgument, ...]
    layout: tuple[LayoutSlot, ...]
    group: tuple[int, ...]
    waits: bool = True
    cut: bool = False
    headers: str = ""
    chunk: int = 0
    threads: int = 0

    def to_job(self, kernel: str, target: Target) -> CompileJob:
        """Returns the job for a worker."""
        parameters: dict[str, JSON] = {
            "file": self.file,
            "function": self.function,
            "arguments": [argument.to_json() for argument in self.arguments],
            "layout": [slot.to_json() for slot in self.layout],
            "group": list(self.group),
            "waits": self.waits,
            "cut": self.cut,
            "headers": self.headers,
            "chunk": self.chunk,
            "threads": self.threads,
        }
        return CompileJob(EMULATOR.name, kernel, target, self.source, parameters)

    @classmethod
    def from_job(cls, job: CompileJob) -> EmulatorJob:
        """Returns the :class:`EmulatorJob` in a job.

        Raises CompileError if the job is another compiler's, or damaged.
        """
        names = ("file", "function", "arguments", "layout", "group", "waits", "cut", "headers", "chunk", "threads")
        try:
            data = read_object(job.parameters, names, "the parameters of the job")
            group = read_integers(data["group"], "a threadgroup")
            if len(group) != 3 or min(group) < 1:
                raise malformed("a threadgroup", data["group"])
            return cls(
                source=job.text,
                file=read_text(data["file"], "the file of a job"),
                function=read_text(data["function"], "the function of a job"),
                arguments=tuple(
                    MetalArgument.from_json(item) for item in read_list(data["arguments"], "the arguments of a job")
                ),
                layout=tuple(LayoutSlot.from_json(item) for item in read_list(data["layout"], "the layout of a job")),
                group=group,
                waits=read_bool(data["waits"], "the waits flag of a job"),
                cut=read_bool(data["cut"], "the cut flag of a job"),
                headers=read_text(data["headers"], "the headers of a job"),
                chunk=read_natural(data["chunk"], "the chunk of a job"),
                threads=read_natural(data["threads"], "the threads of a job"),
            )
        except (TypeError, KeyError, ValueError) as error:
            raise CompileError(f"{job.kernel}: the job is no job of the Metal emulator: {error}") from error


# ---- Making a job from a source and a variant ----

POSITIONS = frozenset(
    {
        "dispatch_quadgroups_per_threadgroup",
        "dispatch_simdgroups_per_threadgroup",
        "dispatch_threads_per_threadgroup",
        "grid_origin",
        "grid_size",
        "quadgroup_index_in_threadgroup",
        "quadgroups_per_threadgroup",
        "simdgroup_index_in_threadgroup",
        "simdgroups_per_threadgroup",
        "thread_execution_width",
        "thread_index_in_quadgroup",
        "thread_index_in_simdgroup",
        "thread_index_in_threadgroup",
        "thread_position_in_grid",
        "thread_position_in_threadgroup",
        "threadgroup_position_in_grid",
        "threadgroups_per_grid",
        "threads_per_grid",
        "threads_per_simdgroup",
        "threads_per_threadgroup",
    }
)
"""The attributes of parameters that are a thread's position: emulator/arguments.h has a function for each."""


def lowered_job(source: MetalSource, variant: Variant) -> EmulatorJob:
    """Returns the job for one variant.

    Raises:
        SourceError: the emulator does not support an attribute of a parameter.
        CompileError: a constant without a value, or an invalid threadgroup.
        ToolchainError: the text includes torch's headers, which are missing.
    """
    constants = source.constants(variant)
    memory = source.memory_bytes(constants)
    passed = [parameter for parameter in variant.signature.parameters if parameter.kind is not ParameterKind.CONSTEXPR]
    layout = tuple(
        LayoutSlot(item.name, AbiType.POINTER)
        if item.kind is ParameterKind.POINTER or item.dtype is None
        else LayoutSlot(item.name, AbiType(item.dtype.short))
        for item in passed
    )
    slots = {slot.name: at for at, slot in enumerate(layout)}

    def argument(msl_parameter: MslParameter) -> MetalArgument:
        if msl_parameter.attribute == "threadgroup":
            return MetalArgument(BufferRole.THREADGROUP, msl_parameter.name, "", memory[msl_parameter.name])
        if not msl_parameter.is_buffer:
            if msl_parameter.attribute not in POSITIONS:
                raise SourceError(
                    f"{source}: {msl_parameter.name} has the attribute {msl_parameter.attribute}, which the emulator "
                    "does not know"
                )
            return MetalArgument(BufferRole.POSITION, msl_parameter.name, msl_parameter.attribute)
        slot = slots[msl_parameter.name]
        if layout[slot].type is not AbiType.POINTER:
            return MetalArgument(BufferRole.VALUE, msl_parameter.name, msl_parameter.type, slot)
        return MetalArgument(
            BufferRole.POINTER if msl_parameter.form == "*" else BufferRole.REFERENCE, msl_parameter.name, "", slot
        )

    # metal_text() would turn the kernel's threadgroup parameters into variables. It gets the kernel without them,
    # because in C++ they stay parameters, even for a template's instance.
    kernel = source.kernel
    own = replace(
        kernel, parameters=tuple(parameter for parameter in kernel.parameters if parameter.attribute != "threadgroup")
    )
    text = metal_text(source.text, own, constants, {}, instances=False)
    options = EMULATOR.read(EMULATOR.own(variant.config.options))
    return EmulatorJob(
        source=rewritten(text),
        file=source.text.file,
        function=kernel.function,
        arguments=tuple(argument(parameter) for parameter in kernel.parameters),
        layout=layout,
        group=source.group_size(constants),
        waits=bool(memory) or may_wait(source.text.text[slice(*kernel.body)]),
        cut=source.cut,
        headers=digest_of_headers() if includes_headers(text) else "",
        chunk=cast("int", options["cpu_chunk"]),
        threads=cast("int", options["cpu_threads"]),
    )
