"""Parses the generic form of MLIR text, as Triton prints modules and attributes, into the SSA form.

Nearly every line is one operation without a region. Such lines are read by a single regular expression, and the texts
of types and attributes are looked up in caches. Everything else is read by the general parser, which also raises the
errors.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from silo.errors import SourceError
from silo.kinds.triton.front.mlir_text import (
    FLOAT_FORMATS,
    PLAIN_TYPE,
    Cursor,
    Locations,
    float_from_bits,
    is_scalar_type,
    parse_signature,
    parse_type,
    read_type,
    read_type_list,
    round_to_format,
)
from silo.kinds.triton.front.ssa import Attribute, Block, Dense, Module, Operation, Region, Type, Value

__all__ = ["parse_attributes", "parse_ttir", "read_attribute", "read_attributes"]

_NUMBER = re.compile(r"(?P<hex>0x[0-9A-Fa-f]+)|(?P<float>-?[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?)|(?P<int>-?[0-9]+)")
_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_.$]*|"(?:[^"\\\n]|\\.)*"')
_SYMBOL = re.compile(r'@(?:[A-Za-z0-9_.$-]+|"(?:[^"\\\n]|\\.)*")(?:::@(?:[A-Za-z0-9_.$-]+|"(?:[^"\\\n]|\\.)*"))*')
_DIALECT = re.compile(r"#[A-Za-z_][A-Za-z0-9_.$]*")
_KEYWORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEX_STRING = re.compile(r'"0x((?:[0-9A-Fa-f]{2})*)"')
_NO_DIGITS = re.compile(r"i[0-9]+|index")
# the most elements of a constant, far more than kernels have; limits the memory that a damaged text can request
_MAX_ELEMENTS = 1 << 22
_MAX_DEPTH = 16


def read_attributes(cursor: Cursor) -> dict[str, Attribute]:
    """Reads ``{name = value, flag}``; a flag without a value is True."""
    cursor.need("{")
    members: dict[str, Attribute] = {}
    if cursor.take("}"):
        return members
    while True:
        start = cursor.skip()
        name = cursor.need_match(_NAME, "the name of an attribute").strip('"')
        if name in members:
            raise cursor.error(f"a name other than {name}, which this dictionary has already", start)
        members[name] = read_attribute(cursor) if cursor.take("=") else True
        if not cursor.take(","):
            cursor.need("}")
            return members


@lru_cache(maxsize=4096)
def parse_attributes(text: str) -> tuple[tuple[str, Attribute], ...] | None:
    """The members of a dictionary, whose text is given without its braces; None if it cannot be parsed."""
    cursor = Cursor("{" + text + "}")
    try:
        members = read_attributes(cursor)
    except SourceError:
        return None
    return tuple(members.items()) if cursor.skip() == len(cursor.text) else None


def read_attribute(cursor: Cursor) -> Attribute:
    """Reads one attribute of any form; dialect attributes, symbols, types and locations are kept as text."""
    cursor.enter()
    value = _read_any(cursor)
    cursor.leave()
    return value


def _read_any(cursor: Cursor) -> Attribute:
    start = cursor.skip()
    first = cursor.text[start : start + 1]
    if first.isdigit() or first == "-":
        return _read_typed_number(cursor)
    if first == '"':
        value = cursor.string()
        _skip_type(cursor)
        return value
    if first == "[":
        return _read_array(cursor)
    if first == "{":
        nested: Mapping[str, Attribute] = MappingProxyType(read_attributes(cursor))
        return nested
    if first == "@":
        return cursor.need_match(_SYMBOL, "a symbol")
    if first == "#":
        name = cursor.need_match(_DIALECT, "a dialect attribute")
        if cursor.text.startswith("<", cursor.position):
            name += cursor.balanced()
        _skip_type(cursor)
        return name
    if first in ("(", "!"):
        return _read_type_text(cursor)
    return _read_keyword(cursor)


def _read_keyword(cursor: Cursor) -> Attribute:
    start = cursor.position
    word = cursor.need_match(_KEYWORD, "an attribute")
    if word in ("true", "false"):
        _skip_type(cursor)
        return word == "true"
    if word == "unit":
        return True
    if word == "dense":
        return _read_dense(cursor)
    if word == "array":
        return _read_dense_array(cursor)
    if word == "loc":
        return word + cursor.balanced()
    if word in ("affine_map", "affine_set", "distinct", "strided"):
        text = word + cursor.balanced()
        return text + cursor.balanced() if word == "distinct" else text
    cursor.position = start
    if word == "tensor" or is_scalar_type(word):
        return _read_type_text(cursor)
    raise cursor.error("an attribute")


def _read_type_text(cursor: Cursor) -> str:
    start = cursor.skip()
    read_type_list(cursor)
    if cursor.take("->"):
        read_type_list(cursor)
    return cursor.text[start : cursor.position]


def _skip_type(cursor: Cursor) -> Type | None:
    return read_type(cursor) if cursor.take(":") else None


def _read_typed_number(cursor: Cursor) -> int | float:
    start = cursor.skip()
    token = cursor.match(_NUMBER)
    if token is None:
        raise cursor.error("a number")
    kind = _skip_type(cursor)
    element = kind.element if kind is not None else ("f64" if token["float"] else "i64")
    return _number(cursor, token, element, start)


def _number(cursor: Cursor, token: re.Match[str], element: str, start: int) -> int | float:
    text = token.group()
    if element in FLOAT_FORMATS or element == "f8E8M0FNU":
        if token["int"] is not None:
            raise cursor.error(f"a floating-point number, as the type is {element}", start)
        if token["float"] is not None:
            return round_to_format(float(text), element)
        try:
            return float_from_bits(int(text, 16), element)
        except ValueError:
            raise cursor.error(f"the bits of an {element}", start) from None
    if not _NO_DIGITS.fullmatch(element) or token["float"] is not None:
        raise cursor.error(f"a value of type {element}", start)
    if len(text) > 64:
        raise cursor.error("an integer of at most 128 bits", start)
    return int(text, 16) if token["hex"] is not None else int(text)


def _read_array(cursor: Cursor) -> tuple[Attribute, ...]:
    cursor.need("[")
    items: list[Attribute] = []
    if cursor.take("]"):
        return ()
    items.append(read_attribute(cursor))
    while cursor.take(","):
        items.append(read_attribute(cursor))
    cursor.need("]")
    return tuple(items)


def _read_dense_array(cursor: Cursor) -> tuple[Attribute, ...]:
    cursor.need("<")
    element = read_type(cursor).element
    items: list[Attribute] = []
    if cursor.take(":"):
        items.append(_read_element(cursor, element))
        while cursor.take(","):
            items.append(_read_element(cursor, element))
    cursor.need(">")
    return tuple(items)


def _read_element(cursor: Cursor, element: str) -> int | float | bool:
    start = cursor.skip()
    for word in ("true", "false"):
        if cursor.take(word):
            return word == "true"
    token = cursor.match(_NUMBER)
    if token is None:
        raise cursor.error("a number, true or false", start)
    value = _number(cursor, token, element, start)
    return bool(value) if element == "i1" else value


def _read_dense(cursor: Cursor) -> Dense:
    # The element type follows the values, but reading the values requires it, so it is found first.
    start = cursor.skip()
    cursor.balanced()
    cursor.need(":")
    kind = read_type(cursor)
    end = cursor.position
    if not kind.tensor:
        raise cursor.error("a tensor type", start)
    if kind.elements > _MAX_ELEMENTS:
        raise cursor.error(f"a constant of at most {_MAX_ELEMENTS} elements", start)
    cursor.position = start
    cursor.need("<")
    if cursor.at('"'):
        values = _read_hex_string(cursor, kind)
    elif cursor.at("["):
        elements: list[int | float | bool] = []
        _read_nested(cursor, kind, 0, elements)
        values = tuple(elements)
    elif cursor.at(">"):
        values = ()
    else:
        values = (_read_element(cursor, kind.element),)
    cursor.need(">")
    if len(values) not in (1, kind.elements):
        raise cursor.error(f"{kind.elements} elements (there are {len(values)})", start)
    cursor.position = end
    return Dense(values, kind)


def _read_nested(cursor: Cursor, kind: Type, axis: int, elements: list[int | float | bool]) -> None:
    start = cursor.skip()
    if axis == len(kind.shape):
        elements.append(_read_element(cursor, kind.element))
        return
    if axis > _MAX_DEPTH:
        raise cursor.error("a shallower tensor")
    cursor.need("[")
    count = 0
    if not cursor.at("]"):
        while True:
            _read_nested(cursor, kind, axis + 1, elements)
            count += 1
            if not cursor.take(","):
                break
    cursor.need("]")
    if count != kind.shape[axis]:
        raise cursor.error(f"{kind.shape[axis]} elements along axis {axis} (there are {count})", start)


def _read_hex_string(cursor: Cursor, kind: Type) -> tuple[int | float | bool, ...]:
    start = cursor.skip()
    token = cursor.match(_HEX_STRING)
    if token is None:
        raise cursor.error("the elements in hex, as an even number of digits after 0x")
    data = bytes.fromhex(token.group(1))
    if kind.element == "i1":
        if len(data) == kind.elements:
            values: tuple[int | float | bool, ...] = tuple(byte != 0 for byte in data)
        else:  # bits are packed, eight in a byte
            values = tuple(bool(byte >> bit & 1) for byte in data for bit in range(8))[: kind.elements]
            if len(data) == 1 and data[0] in (0, 0xFF):
                values = (data[0] == 0xFF,)
        return values
    form = FLOAT_FORMATS.get(kind.element)
    width = form.bits if form is not None else _integer_width(kind.element)
    if width is None or width % 8 or len(data) % (width // 8):
        raise cursor.error(f"whole elements of {kind.element}", start)
    size = width // 8
    if kind.element in ("f32", "f64"):
        return struct.unpack(f"<{len(data) // size}{'f' if size == 4 else 'd'}", data)
    chunks = (data[at : at + size] for at in range(0, len(data), size))
    if form is not None:
        return tuple(float_from_bits(int.from_bytes(chunk, "little"), kind.element) for chunk in chunks)
    return tuple(int.from_bytes(chunk, "little", signed=True) for chunk in chunks)


def _integer_width(element: str) -> int | None:
    if element == "index":
        return 64
    return int(element[1:]) if _NO_DIGITS.fullmatch(element) else None


_LINE = re.compile(
    r'\s*(?:%([\w$.-]+)(?::([0-9]{1,3}))? = )?"([\w.-]+)"\(([^()"\n]*)\)(?: <\{([^{}"\n]{0,400})\}>)?'
    r" : (\([^()\n]*\) -> (?:\([^()\n]*\)|[^ ()\n]+))(?: loc\((#loc[0-9]*|unknown)\))?\n"
)
# Matches the signature of most operations that _LINE does not match; the general parser reads any other form.
_SIGNATURE = re.compile(r"\([^()\n]*\) -> (?:\([^()\n]*\)|[^ ()\n]+)")
_DICTIONARY = re.compile(r'\{((?:[^{}\[\]"\n]|"[^"\\\n]*"|\[(?:[^{}\[\]"\n]|\{[^{}\[\]"\n]*\})*\])*)\}')
_MOST_KEPT = 2000  # the most characters of a dictionary whose parsed form is cached
_PLAIN_ARGUMENT = rf"%([\w$.-]+): ({PLAIN_TYPE})(?: loc\((?:#loc[0-9]*|unknown)\))?"
_ARGUMENT = re.compile(_PLAIN_ARGUMENT)
_ARGUMENTS = re.compile(rf"\({_PLAIN_ARGUMENT}(?:, {_PLAIN_ARGUMENT})*\)")
_RESULT = re.compile(r"%([\w$.-]+)(?::([0-9]{1,3}))?")
_OPERAND = re.compile(r"%([\w$.-]+(?:#[0-9]+)?)")
_LABEL = re.compile(r"\^([\w$.-]+)")
_LOCATION_WORD = re.compile(r"loc\b")
_ALIAS = re.compile(r"[#!][A-Za-z_][\w$.]* = [^\n]*")
_MAX_NESTING = 100


def parse_ttir(text: str) -> Module:
    """Reads one module; ``SourceError`` names the line and the expected text.

    >>> module = parse_ttir('''"builtin.module"() ({
    ...   "tt.func"() <{function_type = (i32) -> (), sym_name = "k", sym_visibility = "public"}> ({
    ...   ^bb0(%arg0: i32):
    ...     "tt.return"() : () -> ()
    ...   }) : () -> ()
    ... }) : () -> ()
    ... ''')
    >>> module.kernel, [argument.type.element for argument in module.entry.regions[0].blocks[0].arguments]
    ('k', ['i32'])
    """
    parser = _Parser(text)
    parser.skip_aliases()
    if not parser.cursor.at('"builtin.module"'):
        raise parser.cursor.error('"builtin.module", the start of a module in generic form')
    root = parser.operation()
    parser.skip_aliases()
    if parser.cursor.skip() != len(text):
        raise parser.cursor.error("the end of the module")
    return _module_of(root)


def _module_of(root: Operation) -> Module:
    functions: dict[str, Operation] = {}
    public: list[str] = []
    for operation in (op for region in root.regions for block in region.blocks for op in block.operations):
        name = operation.attributes.get("sym_name")
        if operation.name != "tt.func" or not isinstance(name, str):
            raise SourceError(
                f"TTIR: expected only functions (tt.func with a sym_name) in a module, found {operation.name}"
            )
        if name in functions:
            raise SourceError(f"TTIR: two functions are called {name}")
        functions[name] = operation
        if operation.attributes.get("sym_visibility", "public") == "public":
            public.append(name)
    if len(public) != 1:
        raise SourceError(f"TTIR: expected one public function, the kernel; found {', '.join(public) or 'none'}")
    return Module(functions, public[0])


@dataclass(slots=True)
class _Scope:
    """The definitions of the region being read: the names to restore at its end, and its blocks by label."""

    shadowed: list[tuple[str, Value | None]] = field(default_factory=list[tuple[str, Value | None]])
    blocks: dict[str, Block] = field(default_factory=dict[str, Block])
    # each label that is used before its definition, with a position in the text at which it is used
    wanted: dict[str, int] = field(default_factory=dict[str, int])


class _Parser:
    def __init__(self, text: str) -> None:
        self.cursor = Cursor(text)
        self.locations = Locations(text)
        self.names: dict[str, Value] = {}
        # values used before their definition, which is allowed across blocks
        self.pending: dict[str, tuple[Value, int]] = {}
        self.scopes = [_Scope()]

    def skip_aliases(self) -> None:
        while self.cursor.match(_ALIAS):
            pass

    # -- values ------------------------------------------------------------------------------------------------------

    def define(self, value: Value, position: int) -> Value:
        """Binds the name of ``value``.

        Returns the object to use. If the name was used before its definition, that is the object made at the first use.
        """
        name = value.name
        existing = self.names.get(name)
        early = self.pending.pop(name, None)
        if early is not None:
            placeholder, used_at = early
            if placeholder.type != value.type:
                raise self.cursor.error(f"%{name} to be used with the type it is defined with", used_at)
            placeholder.owner, placeholder.block, placeholder.index = value.owner, value.block, value.index
            value = placeholder
        elif existing is not None and any(name == mine for mine, _ in self.scopes[-1].shadowed):
            raise self.cursor.error(f"a name other than %{name}, which is defined already", position)
        self.scopes[-1].shadowed.append((name, existing))
        self.names[name] = value
        return value

    def use(self, name: str, kind: Type, position: int) -> Value:
        value = self.names.get(name)
        if value is None and name.endswith("#0"):
            value = self.names.get(name[:-2])
        if value is None:
            early = self.pending.get(name)
            value = early[0] if early is not None else Value(name, kind)
            self.pending.setdefault(name, (value, position))
        if value.type is not kind and value.type != kind:
            raise self.cursor.error(f"%{name} to be used with the type it is defined with", position)
        return value

    # -- operations --------------------------------------------------------------------------------------------------

    def operations(self, block: Block) -> None:
        """Reads operations up to the end of the block."""
        cursor, text, line = self.cursor, self.cursor.text, _LINE.match
        append = block.operations.append
        cursor.skip()
        while True:
            match = line(text, cursor.position)
            operation = self.simple_operation(match) if match is not None else None
            if operation is None:
                cursor.skip()
                if cursor.at("}") or cursor.at("^"):
                    return
                operation = self.operation()
            operation.block = block
            append(operation)

    def simple_operation(self, match: re.Match[str]) -> Operation | None:
        """Reads an operation of one line without a region.

        For other operations it returns None and consumes nothing.
        """
        result, count, name, operand_text, attribute_text, signature_text, location = match.groups()
        signature = parse_signature(signature_text)
        attributes = parse_attributes(attribute_text) if attribute_text else ()
        if signature is None or attributes is None:
            return None
        operand_types, result_types = signature
        tokens = operand_text.split(", ") if operand_text else []
        expected = (int(count) if count else 1) if result else 0
        if len(tokens) != len(operand_types) or len(result_types) != expected:
            return None
        names, operands = self.names, list[Value]()
        for token, kind in zip(tokens, operand_types, strict=True):
            value = names.get(token[1:])
            if value is None or (value.type is not kind and value.type != kind) or token[0] != "%":
                return None
            operands.append(value)
        operation = Operation(name, operands, [], dict(attributes))
        for value in operands:
            value.uses.append(operation)
        if result:
            start = match.start(1)
            for index, kind in enumerate(result_types):
                spelled = f"{result}#{index}" if count else result
                operation.results.append(self.define(Value(spelled, kind, operation, None, index), start))
        if location is not None:
            operation.location = self.locations.resolve(location)
        self.cursor.position = match.end()
        return operation

    def operation(self) -> Operation:
        """Reads any operation in generic form."""
        cursor = self.cursor
        results = self.result_names()
        start = cursor.skip()
        name = cursor.string()
        operands = self.operand_names()
        successors = self.successor_blocks()
        attributes: dict[str, Attribute] = {}
        if cursor.take("<"):
            attributes.update(self.attributes(cursor))
            cursor.need(">")
        operation = Operation(name, [], [], attributes, successors=successors)
        # Operands are bound before the regions are read, because their names must not refer to values inside of the
        # regions.
        bound = [(operand, at, self.names.get(operand)) for operand, at in operands]
        if cursor.take("("):
            self.regions(operation)
        if cursor.at("{"):
            for key, value in self.attributes(cursor):
                attributes.setdefault(key, value)
        cursor.need(":")
        types_at = cursor.skip()
        operand_types, result_types = self.signature()
        if len(operand_types) != len(bound):
            raise cursor.error(f"{len(bound)} operand types for {name}", types_at)
        if len(result_types) != len(results):
            raise cursor.error(f"{len(results)} result types for {name}", types_at)
        for (operand, at, known_type), kind in zip(bound, operand_types, strict=True):
            value = known_type if known_type is not None and known_type.type == kind else self.use(operand, kind, at)
            operation.operands.append(value)
            value.uses.append(operation)
        for index, (result, kind) in enumerate(zip(results, result_types, strict=True)):
            operation.results.append(self.define(Value(result, kind, operation, None, index), start))
        operation.location = self.location()
        return operation

    def attributes(self, cursor: Cursor) -> Iterable[tuple[str, Attribute]]:
        """Reads a dictionary in braces; a text that was read before comes from a cache."""
        plain = _DICTIONARY.match(cursor.text, cursor.skip())
        parsed = None if plain is None or len(plain[1]) > _MOST_KEPT else parse_attributes(plain[1])
        if plain is None or parsed is None:
            return read_attributes(cursor).items()
        cursor.position = plain.end()
        return parsed

    def signature(self) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
        """Reads ``(types) -> types``; a text that was read before comes from a cache."""
        cursor = self.cursor
        plain = _SIGNATURE.match(cursor.text, cursor.skip())
        parsed = None if plain is None else parse_signature(plain[0])
        if plain is not None and parsed is not None:
            cursor.position = plain.end()
            return parsed
        operand_types = self.parenthesized_types()
        cursor.need("->")
        return operand_types, read_type_list(cursor)

    def result_names(self) -> list[str]:
        cursor, names = self.cursor, list[str]()
        if not cursor.at("%"):
            return names
        while True:
            match = cursor.match(_RESULT)
            if match is None:
                raise cursor.error("the name of a result")
            name, count = match.groups()
            names.extend([f"{name}#{index}" for index in range(int(count))] if count else [name])
            if not cursor.take(","):
                cursor.need("=")
                return names

    def operand_names(self) -> list[tuple[str, int]]:
        cursor, names = self.cursor, list[tuple[str, int]]()
        cursor.need("(")
        if cursor.take(")"):
            return names
        while True:
            at = cursor.skip()
            match = cursor.match(_OPERAND)
            if match is None:
                raise cursor.error("an operand such as %3")
            names.append((match.group(1), at))
            if not cursor.take(","):
                cursor.need(")")
                return names

    def successor_blocks(self) -> list[Block]:
        cursor, blocks = self.cursor, list[Block]()
        if not cursor.take("["):
            return blocks
        scope = self.scopes[-1]
        while True:
            at = cursor.skip()
            match = cursor.match(_LABEL)
            if match is None:
                raise cursor.error("the label of a block such as ^bb1")
            label = match.group(1)
            if label not in scope.blocks:
                scope.blocks[label] = Block()
                scope.wanted[label] = at
            blocks.append(scope.blocks[label])
            if not cursor.take(","):
                cursor.need("]")
                return blocks

    def parenthesized_types(self) -> tuple[Type, ...]:
        if not self.cursor.at("("):
            raise self.cursor.error("'('")
        return read_type_list(self.cursor)

    def location(self) -> str:
        cursor = self.cursor
        if not cursor.match(_LOCATION_WORD):
            return ""
        return self.locations.resolve(cursor.balanced()[1:-1])

    # -- regions and blocks ------------------------------------------------------------------------------------------

    def regions(self, operation: Operation) -> None:
        if len(self.scopes) > _MAX_NESTING:
            raise self.cursor.error(f"at most {_MAX_NESTING} nested regions")
        while True:
            self.cursor.need("{")
            region = Region(owner=operation)
            operation.regions.append(region)
            self.scopes.append(_Scope())
            isolated = operation.name in ("tt.func", "builtin.module")
            outer_pending = self.pending
            if isolated:
                self.pending = {}
            self.region_body(region)
            if isolated:
                for name, (_, position) in self.pending.items():
                    raise self.cursor.error(f"%{name} to be defined", position)
                self.pending = outer_pending
            self.close_scope()
            if not self.cursor.take(","):
                self.cursor.need(")")
                return

    def region_body(self, region: Region) -> None:
        cursor, scope = self.cursor, self.scopes[-1]
        if not cursor.at("^") and not cursor.at("}"):
            entry = Block(region=region)
            region.blocks.append(entry)
            self.operations(entry)
        while not cursor.take("}"):
            start = cursor.skip()
            match = cursor.match(_LABEL)
            if match is None:
                raise cursor.error("an operation, a block or '}'")
            label = match.group(1)
            if label in scope.blocks and label not in scope.wanted:
                raise cursor.error(f"a label other than ^{label}, which stands already", start)
            scope.wanted.pop(label, None)
            block = scope.blocks.setdefault(label, Block())
            block.region = region
            region.blocks.append(block)
            self.block_arguments(block)
            cursor.need(":")
            self.operations(block)
        for label, position in scope.wanted.items():
            raise cursor.error(f"a block ^{label} in this region", position)

    def block_arguments(self, block: Block) -> None:
        cursor = self.cursor
        plain = _ARGUMENTS.match(cursor.text, cursor.position)
        matches = [] if plain is None else list(_ARGUMENT.finditer(cursor.text, plain.start(), plain.end()))
        kinds = [parse_type(argument_match[2]) for argument_match in matches]
        if plain is not None and None not in kinds:
            for argument_match, kind in zip(matches, kinds, strict=True):
                assert kind is not None
                value = Value(argument_match[1], kind, None, block, len(block.arguments))
                block.arguments.append(self.define(value, argument_match.start()))
            cursor.position = plain.end()
            return
        if not cursor.take("("):
            return
        while not cursor.take(")"):
            if block.arguments:
                cursor.need(",")
            start = cursor.skip()
            match = cursor.match(_OPERAND)
            if match is None:
                raise cursor.error("a block argument such as %arg0")
            cursor.need(":")
            kind = read_type(cursor)
            self.location()
            value = Value(match.group(1), kind, None, block, len(block.arguments))
            block.arguments.append(self.define(value, start))

    def close_scope(self) -> None:
        for name, before in reversed(self.scopes.pop().shadowed):
            if before is None:
                self.names.pop(name, None)
            else:
                self.names[name] = before
