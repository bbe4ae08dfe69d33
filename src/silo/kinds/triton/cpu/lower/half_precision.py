"""Cuts loops over f16 in memory into blocks that are converted as a whole.

CPUs have instructions that convert f16, but gcc vectorises integer code instead. So a loop that reads and writes f16 in
the order of its index first converts a block of its operands to f32, computes on that, and converts the results at the
block's end.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, Forever, If, LoopCall, LoopProgram, Statement

__all__ = ["PIECE", "convert_in_blocks", "converted_loads"]

PIECE = "half_blocks"  # the piece of the C runtime that converts blocks
_BLOCK = 256  # elements of a block: in f32 they take 1 KiB of the stack
_WORD = re.compile(r"[A-Za-z_]\w*")
_SCRATCH = re.compile(r"b\d+")
_WIDEN, _NARROW = "silo_f16_to_f32", "silo_f32_to_f16"


def convert_in_blocks(program: LoopProgram, lanes: int) -> bool:
    """Cuts the loops of ``program`` into blocks that become faster if f16 is converted block by block.

    Returns whether a loop needs the functions that convert f16. Reductions of at least ``lanes`` elements are not cut,
    because ``reduce_in_lanes`` converts a vector at a time; if ``lanes`` is 0, reductions are cut too.
    """
    state = _State(lanes)
    program.body = _statements(program.body, state)
    for function in program.functions:
        function.body = _statements(function.body, state)
    return state.count > 0


@dataclass(slots=True)
class _State:
    """The lanes of reductions whose loops are not cut (0 if all are cut), and a counter for fresh names."""

    lanes: int
    count: int = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"


def _statements(body: list[Statement], state: _State) -> list[Statement]:
    result: list[Statement] = []
    for statement in body:
        match statement:
            case For() if statement.simd:
                result.extend(_blocked(statement, state))
            case For():
                result.append(replace(statement, body=_statements(statement.body, state)))
            case If(condition, then, otherwise):
                result.append(If(condition, _statements(then, state), _statements(otherwise, state)))
            case Forever(inner):
                result.append(Forever(_statements(inner, state)))
            case _:
                result.append(statement)
    return result


def _blocked(loop: For, state: _State) -> list[Statement]:
    """The loop in blocks; unchanged if it contains more than definitions and assignments, or no f16 to convert."""
    if loop.step != "1" or not all(isinstance(statement, Define | Assign) for statement in loop.body):
        return [loop]
    loads, stores = converted_loads(loop), _stores(loop)
    if not loads and not stores:
        return [loop]
    if state.lanes and loop.reductions and not stores and not _is_short(loop, state.lanes):
        state.count += 1
        return [loop]
    start, count = state.name("block"), state.name("count")
    index = f"{loop.variable} - {start}"
    wide = {name: state.name("wide") for name in (*loads, *stores)}
    body: list[Statement] = []
    for statement in loop.body:
        match statement:
            case Define(_, name) if name in wide:
                pass
            case Assign(_, value) if value in stores:
                body.append(Assign(f"{wide[value]}[{index}]", _replaced(stores[value][1], wide, loads, index)))
            case Define(ctype, name, value, mutable):
                body.append(Define(ctype, name, value and _replaced(value, wide, loads, index), mutable))
            case Assign(target, value, condition):
                texts = (_replaced(text, wide, loads, index) for text in (target, value, condition))
                body.append(Assign(*texts))
            case _:
                raise AssertionError(statement)  # callers pass only definitions and assignments
    most = min(loop.most, _BLOCK) if loop.reductions else 0
    block: list[Statement] = [
        Define("int64_t", count, f"({loop.end}) - {start} < {_BLOCK} ? ({loop.end}) - {start} : {_BLOCK}"),
        *(LoopCall(f"silo_widen_row_f16({wide[name]}, {load} + {start}, {count})") for name, load in loads.items()),
        replace(loop, start=start, end=f"{start} + {count}", body=body, most=most),
        *(
            LoopCall(f"silo_narrow_row_f16({address} + {start}, {wide[name]}, {count})")
            for name, (address, _) in stores.items()
        ),
    ]
    buffers = [Define("float", f"{name}[{_BLOCK}]", None, mutable=True) for name in wide.values()]
    return [*buffers, For(start, loop.start, loop.end, block, str(_BLOCK), loop.ctype)]


def _uses(loop: For) -> Counter[str]:
    """How often the body uses each name; definitions of the name do not count."""
    counts: Counter[str] = Counter()
    for statement in loop.body:
        if isinstance(statement, Define):
            counts.update(_WORD.findall(statement.value or ""))
        elif isinstance(statement, Assign):
            counts.update(_WORD.findall(f"{statement.target} {statement.value} {statement.condition}"))
    return counts


def _is_short(loop: For, lanes: int) -> bool:
    return loop.end.isdigit() and int(loop.end) < lanes


def converted_loads(loop: For) -> dict[str, str]:
    """The names of f16 values that are loaded in the order of the index and only widened, each with its pointer."""
    uses = _uses(loop)
    texts = [f"{getattr(statement, 'value', '') or ''}" for statement in loop.body]
    loads: dict[str, str] = {}
    for statement in loop.body:
        if isinstance(statement, Define) and statement.ctype == "uint16_t" and statement.value is not None:
            address = _in_order(statement.value, loop.variable)
            widened = sum(text.count(f"{_WIDEN}({statement.name})") for text in texts)
            if address and widened and widened == uses[statement.name]:
                loads[statement.name] = address
    return loads


def _stores(loop: For) -> dict[str, tuple[str, str]]:
    """The names of f16 values that are only stored, in the order of the index.

    Each name maps to the pointer of the store, and to the name of the f32 value that is narrowed to f16.
    """
    uses = _uses(loop)
    narrowed = {
        statement.name: statement.value[len(_NARROW) + 1 : -1]
        for statement in loop.body
        if isinstance(statement, Define) and statement.value is not None and _is_call(statement.value, _NARROW)
    }
    stores: dict[str, tuple[str, str]] = {}
    for statement in loop.body:
        if isinstance(statement, Assign) and statement.value in narrowed and not statement.condition:
            address = _in_order(statement.target, loop.variable)
            if address and uses[statement.value] == 1:
                stores[statement.value] = (address, narrowed[statement.value])
    # Narrowed values are written after the block, so they must be the body's last writes to arguments' memory.
    written = [s for s in loop.body if isinstance(s, Assign) and _reaches_memory(s.target)]
    if all(statement.value in stores for statement in written):
        return stores
    return {name: store for name, store in stores.items() if _SCRATCH.fullmatch(store[0])}


def _reaches_memory(target: str) -> bool:
    """Whether an assignment writes an argument's memory, rather than a scalar or one of the kernel's own buffers."""
    return target.startswith("*") or ("[" in target and not _SCRATCH.fullmatch(target.partition("[")[0]))


def _in_order(text: str, variable: str) -> str:
    """The pointer in a text of the form ``pointer[variable]``; "" for any other text."""
    match = re.fullmatch(r"(\w+)\[(\w+)\]", text)
    return match.group(1) if match is not None and match.group(2) == variable else ""


def _is_call(text: str, function: str) -> bool:
    """Whether the whole text is one call of ``function``."""
    if not text.startswith(f"{function}(") or not text.endswith(")"):
        return False
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter == ")":
            return index == len(text) - 1
    return False


def _replaced(text: str, wide: dict[str, str], loads: dict[str, str], index: str) -> str:
    """``text``, with the widened loads replaced by reads of their blocks."""
    for name in loads:
        text = text.replace(f"{_WIDEN}({name})", f"{wide[name]}[{index}]")
    return text
