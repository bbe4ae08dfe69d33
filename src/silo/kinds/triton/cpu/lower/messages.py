"""Lowers ``tt.print``, ``tt.assert`` and the operations of a check to calls of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.loop_ir import If, LoopCall, Return, Statement
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.front.operations import further_dialects, tt
from silo.kinds.triton.front.operations.cpu.c_types import FLOATS, FP8, INTEGERS, NARROW, element_bytes
from silo.kinds.triton.front.ssa import Block, Module, Operation, Type

__all__ = [
    "assert_statements",
    "checked_expression",
    "checked_statement",
    "flush_statement",
    "message_statements",
    "split_prints",
]

# ---- Lowers ``tt.print`` and ``tt.assert``: one line, or one test, for each element ----

_PROGRAM = "program_x, program_y, program_z"


def split_prints(module: Module) -> None:
    """Replaces a ``tt.print`` of several values by one ``tt.print`` for each value, in place.

    The values may differ in shape.
    """
    for operation in module.walk():
        if operation.name == tt.PRINT and len(operation.operands) > 1:
            assert operation.block is not None
            _split(operation, operation.block)


def _split(operation: Operation, block: Block) -> None:
    signs = operation.attributes.get("isSigned", ())
    assert isinstance(signs, tuple)
    position = block.operations.index(operation)
    parts: list[Operation] = []
    for number, operand in enumerate(operation.operands):
        attributes = {**operation.attributes, "isSigned": signs[number : number + 1], "operand": number}
        part = Operation(operation.name, [operand], [], attributes, block=block, location=operation.location)
        operand.uses.remove(operation)
        operand.uses.append(part)
        parts.append(part)
    block.operations[position : position + 1] = parts


def message_statements(
    scope: LoweringScope, operation: Operation, value: str, index: Sequence[str] = ()
) -> list[Statement]:
    """The code for one element ``value`` at ``index`` of the operand; ``value`` is "" for a print without operands."""
    if operation.name == tt.ASSERT:
        return assert_statements(scope, operation, value, index)
    scope.pieces.add("print")
    line = LoopCall(_print(scope, operation, value, index))
    # A check runs a kernel several times, and prints its messages once.
    checked = "checked" in operation.attributes
    return [If("!((struct silo_check *)context)->quiet", [line])] if checked else [line]


def flush_statement() -> Statement:
    """The statement after a print that flushes its lines, so that they appear even if the program faults later."""
    return LoopCall("fflush((void *)0)")


# ---- print


def _print(scope: LoweringScope, operation: Operation, value: str, index: Sequence[str]) -> str:
    prefix = operation.attributes.get("prefix", "")
    assert isinstance(prefix, str)
    head = "pid (%d, %d, %d)"
    arguments = [_PROGRAM]
    if operation.operands:
        type_ = operation.operands[0].type
        head += f" idx ({_index_format(type_.shape)})"
        arguments += [f"(int){name}" for name in index]
    head += "%s"
    arguments.append(c_string(prefix))
    if "operand" in operation.attributes:
        number = operation.attributes["operand"]
        assert isinstance(number, int)  # set by `split_prints`
        head += f"(operand {number:d}) "
    if operation.operands:
        signs = operation.attributes.get("isSigned", ())
        signed = not isinstance(signs, tuple) or not signs or bool(signs[0])
        form, text = _formatted(scope, operation.operands[0].type, value, signed, bool(operation.attributes.get("hex")))
        head += form
        arguments.append(text)
    return f'printf("{head}\\n", {", ".join(arguments)})'


def _index_format(shape: tuple[int, ...]) -> str:
    """Returns a format as wide as the largest index of each axis, so that columns are aligned."""
    return ", ".join(f"%{max(len(str(extent - 1)), 1)}d" for extent in shape)


def _formatted(scope: LoweringScope, type_: Type, value: str, signed: bool, is_hex: bool) -> tuple[str, str]:  # noqa: FBT001
    """The ``printf`` conversion of one value, and the C expression of its argument."""
    element = type_.element
    if type_.pointer:
        return "%p", f"(void *){value}"
    if is_hex:
        bits = INTEGERS.get(element) or 8 * element_bytes(element)
        if element in ("f32", "f64"):
            value = f"silo_bits_{element}({value})"
        wide = f"(unsigned long long)(uint{max(bits, 8)}_t){value}"
        return f"0x%0{max(bits // 4, 1)}llx", wide
    if element in NARROW:
        scope.pieces.add(NARROW[element])
        return "%f", f"(double)silo_{element}_to_f32({value})"
    if element in FLOATS:
        return "%f", f"(double){value}"
    if signed and element != "i1":
        return "%lld", f"(long long){value}"
    return "%llu", f"(unsigned long long)(uint{max(INTEGERS[element], 8)}_t){value}"


# ---- assert


def assert_statements(scope: LoweringScope, operation: Operation, value: str, index: Sequence[str]) -> list[Statement]:
    """Statements that end the launch with an error if ``value`` is false."""
    scope.pieces.add("fault")
    message = operation.attributes.get("message", "")
    assert isinstance(message, str)
    room = scope.name("room")
    # the same words as CUDA's, because programs search for them
    words = f"device-side assert{f' at {operation.location}' if operation.location else ''}{': ' if message else ''}"
    where = "; program (%d, %d, %d)" + (f", index ({', '.join(['%d'] * len(index))})" if index else "")
    arguments = [c_string(words), c_string(message), _PROGRAM, *(f"(int){name}" for name in index)]
    text = f"((struct silo_fault *)context)->text, {room}"
    return [
        If(
            f"!{value}",
            [
                LoopCall(f"__SIZE_TYPE__ const {room} = silo_fault_claim(context)"),
                If(room, [LoopCall(f'snprintf({text}, "%s%s{where}", {", ".join(arguments)})')]),
                Return("SILO_FAULT_ASSERT"),
            ],
        )
    ]


def c_string(text: str) -> str:
    r"""A C string literal of any text. Text of the module enters the C text only through this function.

    Characters with a meaning to a compiler, to ``printf`` or to a terminal, and non-ASCII ones, are written as octal
    bytes.

    >>> print(c_string('a "b" 50%\n'))
    "a \042b\042 50\045\012"
    """
    data = text.encode(errors="surrogatepass")
    plain = [chr(byte) if 32 <= byte < 127 and byte not in b'"\\?%' else f"\\{byte:03o}" for byte in data]
    return '"' + "".join(plain) + '"'


# ---- The operations that ``checking.instrument`` adds, as calls of the runtime piece ``check`` ----

_SCALAR = "-1"  # the lane of a value that has no index
_HOLDS = {"device_assert": "SILO_CHECK_ASSERT", "assume": "SILO_CHECK_ASSUME"}


def checked_statement(scope: LoweringScope, operation: Operation) -> Statement | None:
    """The C statement of a check operation on scalars that is executed for its effect alone.

    Returns None for a check operation whose result is used: it becomes an expression (:func:`checked_expression`).
    """
    scope.pieces.add("check")
    match operation.name:
        case further_dialects.BEGIN:
            return If("silo_check_begin(context, program)", [Return("1")])
        case further_dialects.STEP:
            return If(f"silo_check_step(context, {_site(operation)})", [Return("1")])
        case further_dialects.STORES:
            return LoopCall(f"silo_check_stores(context, {_site(operation)})")
        case further_dialects.HOLDS:
            return LoopCall(_holds(operation, [scope.scalar(operation.operands[0])], _SCALAR))
        case _:
            return None


def checked_expression(
    scope: LoweringScope, operation: Operation, operands: Sequence[str], lane: str = _SCALAR, index: Sequence[str] = ()
) -> str:
    """The C expression of one element of a check operation, at the row-major ``lane`` and the ``index`` of its tile."""
    scope.pieces.add("check")
    match operation.name:
        case further_dialects.ACCESS:
            return _access(operation, operands, lane)
        case further_dialects.PLACE:
            checked_address = f"silo_check_place(context, {_site(operation)}, (uint64_t){operands[0]}, {lane})"
            return f"({ops.c_type(operation.result.type)})(uintptr_t){checked_address}"
        case further_dialects.HOLDS:
            return _holds(operation, operands, lane)
        case further_dialects.HINT:
            return _hint(operation, operands[0], lane, index)
        case further_dialects.WITHIN:
            extent = operation.attributes["extent"]
            within = f"silo_check_within(context, {_site(operation)}, {lane}, (int64_t){operands[0]}, {extent})"
            return f"({ops.c_type(operation.result.type)}){within}"
        case _:
            return _suspect(scope, operation, operands, lane)


def _site(operation: Operation) -> int:
    site = operation.attributes["site"]
    assert isinstance(site, int)
    return site


def _access(operation: Operation, operands: Sequence[str], lane: str) -> str:
    """The C expression that checks an access.

    ``operands``: the address, the mask if there is one, the stored value if ``stores`` is set.
    """
    address, *rest = operands
    stored = rest.pop() if operation.attributes.get("stores") else None
    about = f"context, {_site(operation)}, (uint64_t){address}, {rest[0] if rest else 1}, {lane}"
    if stored is None:
        return f"silo_check_access({about})"
    ctype = ops.c_type(operation.operands[-1].type)
    return f"silo_check_store({about}, ({ctype} const[1]){{{stored}}})"


def _holds(operation: Operation, operands: Sequence[str], lane: str) -> str:
    kind = _HOLDS[str(operation.attributes["what"])]
    return f"silo_check_holds(context, {kind}, {_site(operation)}, {lane}, {operands[0]})"


def _hint(operation: Operation, value: str, lane: str, index: Sequence[str]) -> str:
    type_ = operation.operands[0].type
    unit = element_bytes(type_.element) if type_.pointer else 1
    axis = operation.attributes["axis"]
    assert isinstance(axis, int)
    along = index[axis] if index else "0"
    promised = ", ".join(
        str(operation.attributes[name]) for name in ("tt.divisibility", "tt.contiguity", "tt.constancy")
    )
    about = f"{_site(operation)}, {lane}, {along}, (int64_t){value}, {unit}, {promised}, {int(type_.pointer)}"
    return f"silo_check_hint(context, {about})"


def _suspect(scope: LoweringScope, operation: Operation, operands: Sequence[str], lane: str) -> str:
    """The C expression of a value, or of one of three replacements if the check chooses one at run time."""
    value, *facts = operands
    condition = _SUSPICIONS[str(operation.attributes["what"])](scope, operation, value, facts)
    others = _others(operation.result.type, str(operation.attributes["what"]), value)
    choice = f"silo_check_suspect(context, {_site(operation)}, {lane}, {condition})"
    ctype = ops.c_type(operation.result.type)
    return f"(({ctype} const[4]){{{value}, {others[0]}, {others[1]}, {others[2]}}})[{choice}]"


def _is_masked_off(_scope: LoweringScope, _operation: Operation, _value: str, facts: Sequence[str]) -> str:
    return f"!{facts[0]}"


def _is_by_zero(_scope: LoweringScope, _operation: Operation, _value: str, facts: Sequence[str]) -> str:
    return f"{facts[0]} == 0"


def _has_wrapped(_scope: LoweringScope, operation: Operation, _value: str, facts: Sequence[str]) -> str:
    return f"silo_check_wraps_{operation.attributes['how']}({facts[0]}, {facts[1]})"


def _is_new_nan(scope: LoweringScope, operation: Operation, value: str, facts: Sequence[str]) -> str:
    types = [operand.type for operand in operation.operands]
    tests = [_is_nan(scope, text, type_) for text, type_ in zip([value, *facts], types, strict=True)]
    return " && ".join([tests[0], *(f"!({test})" for test in tests[1:])])


def _is_nan(scope: LoweringScope, text: str, type_: Type) -> str:
    if type_.element == "i1":
        return text
    if type_.element in NARROW:
        scope.pieces.add(NARROW[type_.element])
        text = f"silo_{type_.element}_to_f32({text})"
    return f"__builtin_isnan({text})"


_SUSPICIONS: dict[str, Callable[[LoweringScope, Operation, str, Sequence[str]], str]] = {
    "masked load": _is_masked_off,
    "division": _is_by_zero,
    "32-bit arithmetic": _has_wrapped,
    "not a number": _is_new_nan,
}


def _others(type_: Type, label: str, value: str) -> tuple[str, str, str]:
    """Three replacements for a doubtful value: two that differ much from it and likely change a result, and 0."""
    element = type_.element
    zero = ops.zero(type_)
    if label == "not a number":
        return ops.literal(1.5, element), ops.literal(-2.5, element), zero
    if element == "i1":
        return f"(uint8_t)!{value}", f"(uint8_t)!{value}", zero
    if element in INTEGERS:
        half = 2 ** (INTEGERS[element] - 2)
        ctype = ops.c_type(type_)
        return f"({ctype})({value} ^ {half + 5})", f"({ctype})({value} ^ ~({half}ll + 2))", zero
    if element in FP8:  # some of these types have no infinity
        return "(uint8_t)0x78", "(uint8_t)0xf8", zero
    return ops.literal(float("inf"), element), ops.literal(float("-inf"), element), zero
