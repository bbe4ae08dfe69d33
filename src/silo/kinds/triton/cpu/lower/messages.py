"""Lowers ``tt.print`` and ``tt.assert``: one line, or one question, for each element."""

from __future__ import annotations

from collections.abc import Sequence

from silo.kinds.triton.cpu.loop_ir import If, LoopCall, Return, Statement
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.front.operations import tt
from silo.kinds.triton.front.operations.cpu.c_types import FLOATS, INTEGERS, NARROW, element_bytes
from silo.kinds.triton.front.ssa import Block, Module, Operation, Type

__all__ = ["assert_statements", "flush_statement", "message_statements", "split_prints"]

_PROGRAM = "program_x, program_y, program_z"


def split_prints(module: Module) -> None:
    """Make a ``tt.print`` of several values one for each, in place: they may differ in shape."""
    for operation in list(module.walk()):
        if operation.name == tt.PRINT and len(operation.operands) > 1:
            assert operation.block is not None
            _split(operation, operation.block)


def _split(operation: Operation, block: Block) -> None:
    signs = operation.attributes.get("isSigned", ())
    assert isinstance(signs, tuple)
    place = block.operations.index(operation)
    parts: list[Operation] = []
    for number, operand in enumerate(operation.operands):
        attributes = {**operation.attributes, "isSigned": signs[number : number + 1], "operand": number}
        part = Operation(operation.name, [operand], [], attributes, block=block, location=operation.location)
        operand.uses.remove(operation)
        operand.uses.append(part)
        parts.append(part)
    block.operations[place : place + 1] = parts


def message_statements(
    scope: LoweringScope, operation: Operation, value: str, index: Sequence[str] = ()
) -> list[Statement]:
    """What is done for one element ``value`` at ``index`` of the operand; ``value`` is "" where a print has none."""
    if operation.name == tt.ASSERT:
        return assert_statements(scope, operation, value, index)
    scope.pieces.add("print")
    line = LoopCall(_print(scope, operation, value, index))
    # A check runs a kernel several times, and lets it speak once.
    checked = "checked" in operation.attributes
    return [If("!((struct silo_check *)context)->quiet", [line])] if checked else [line]


def flush_statement() -> Statement:
    """What a print ends with: lines come out even if the program faults later."""
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
        assert isinstance(number, int)  # `_split` put it there
        head += f"(operand {number:d}) "
    if operation.operands:
        signs = operation.attributes.get("isSigned", ())
        signed = not isinstance(signs, tuple) or not signs or bool(signs[0])
        form, text = _formatted(scope, operation.operands[0].type, value, signed, bool(operation.attributes.get("hex")))
        head += form
        arguments.append(text)
    return f'printf("{head}\\n", {", ".join(arguments)})'


def _index_format(shape: tuple[int, ...]) -> str:
    """As wide as the largest index of each axis, so that columns stand under one another."""
    return ", ".join(f"%{max(len(str(extent - 1)), 1)}d" for extent in shape)


def _formatted(scope: LoweringScope, type_: Type, value: str, signed: bool, is_hex: bool) -> tuple[str, str]:  # noqa: FBT001
    """The conversion of one value and the C expression that it takes."""
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
    """End the launch where ``value`` is not so."""
    scope.pieces.add("fault")
    message = operation.attributes.get("message", "")
    assert isinstance(message, str)
    room = scope.name("room")
    # as CUDA calls it: programs look for these words
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
    r"""A C string literal of any text; the only way for a text of the module into the C text.

    What means something to a compiler, to ``printf`` or to a terminal, and what is no ASCII, goes in as octal bytes.

    >>> print(c_string('a "b" 50%\n'))
    "a \042b\042 50\045\012"
    """
    data = text.encode(errors="surrogatepass")
    plain = [chr(byte) if 32 <= byte < 127 and byte not in b'"\\?%' else f"\\{byte:03o}" for byte in data]
    return '"' + "".join(plain) + '"'
