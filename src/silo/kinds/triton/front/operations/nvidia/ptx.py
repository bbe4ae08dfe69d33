"""Inline assembly: translates straight-line PTX on registers to one C expression.

``ptx_program`` evaluates the text with the instructions of ``ptx_table``. A text with any other statement is refused,
because its meaning is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from silo.kinds.triton.front.operations.cpu.c_arith import bitcast
from silo.kinds.triton.front.operations.cpu.c_types import (
    INTEGERS,
    RefusedError,
    Renderer,
    ScalarCall,
    c_type,
    element_bytes,
)
from silo.kinds.triton.front.operations.nvidia.ptx_program import PtxProgram, Shape, evaluate
from silo.kinds.triton.front.operations.nvidia.ptx_table import INLINE
from silo.kinds.triton.front.operations.nvidia.ptx_values import Element, Joined, Literal, RegisterPart
from silo.kinds.triton.front.ssa import Operation, Type

__all__ = ["inline_parts", "inline_refusal", "inline_renderer"]

# Waits between launches, which Triton before 3.9 writes. They have no effect here, because launches run one after
# another.
_WAITS = frozenset({"griddepcontrol.wait", "griddepcontrol.launch_dependents"})
_MOST_PACK = 64
_INT = 32


def inline_renderer(truncation: str) -> Renderer:
    """The renderer of straight-line PTX; ``truncation`` is the name of the operation that narrows integers."""

    def render(call: ScalarCall) -> str:
        return _rendered(call, truncation)

    return render


def inline_refusal(truncation: str) -> Callable[[Operation], str]:
    """Returns a function that gives the reason to refuse an inline assembly with any number of results, or "".

    ``truncation``: see :func:`inline_renderer`.
    """

    def refuse(operation: Operation) -> str:
        for part in inline_parts(operation):
            types = [value.type for value in part.operands]
            try:
                _rendered(
                    ScalarCall(part, [f"x{index}" for index in range(len(types))], types, part.result.type), truncation
                )
            except RefusedError as error:
                return str(error)
        return ""

    return refuse


def _rendered(call: ScalarCall, truncation: str) -> str:
    call.pointer_free()
    operation = call.operation
    text = str(operation.attributes.get("asm_string"))
    if not call.operands and text.partition("//")[0].strip().removesuffix(";").strip() in _WAITS:
        return "0"
    element_types = operation.attributes.get("results", (call.element,))
    assert isinstance(element_types, tuple)
    elements, results = [type_.element for type_ in call.types], [str(element) for element in element_types]
    pack = call.attribute("packed_element", 1)
    if "i1" in {*elements, *results} or not 0 < pack <= _MOST_PACK:
        raise _refused(call, "it takes and gives numbers of 8 to 64 bits, at most 64 at a time")
    shape = Shape(
        tuple(8 * element_bytes(element) for element in elements),
        tuple(8 * element_bytes(element) for element in results),
        pack,
        _used_bits(operation, truncation, 8 * element_bytes(call.element)),
        call.attribute("result", 0),
    )
    try:
        program = evaluate(text, str(operation.attributes.get("constraints")), shape)
        return _Expression(call, program).text()
    except RefusedError as error:
        raise _refused(call, str(error)) from None


def _used_bits(operation: Operation, truncation: str, width: int) -> int:
    """The number of a result's low bits that the kernel uses: less than ``width`` if every use truncates the result."""
    uses = operation.results[0].uses if operation.results else []
    if not uses or any(use.name != truncation for use in uses):
        return width
    return max(min(INTEGERS[use.result.type.element], width) for use in uses)


def inline_parts(operation: Operation) -> list[Operation]:
    """The operation split into one for each result; only ``operation`` itself if it has one result.

    The new operations are not in the module yet.
    """
    if len(operation.results) == 1:
        return [operation]
    kinds = tuple(result.type.element for result in operation.results)
    return [
        replace(operation, results=[result], attributes={**operation.attributes, "results": kinds, "result": number})
        for number, result in enumerate(operation.results)
    ]


class _Expression:
    """The C text of the expression that a PTX text computes.

    Nodes that are read once are written in place; all other nodes are first defined as constants.
    """

    def __init__(self, call: ScalarCall, program: PtxProgram) -> None:
        self._call, self._graph, self._result = call, program.graph, program.result
        self._texts: dict[int, tuple[str, str]] = {}  # the C text and the element type of each node

    def text(self) -> str:
        """The C expression.

        If it needs C constants for nodes that are read several times, it is a GNU C statement expression: a block whose
        last statement is its value.
        """
        numbers = self._graph.below(self._result)
        reads = Counter(source for number in numbers for source in self._sources(number))
        lines: list[str] = []
        for number in numbers:
            text, element = self._node(number)
            # A node that is read several times becomes a constant, because an operand may be any expression and must
            # occur only once in the text.
            if reads[number] > 1 and not text.isidentifier() and not isinstance(self._graph.nodes[number], Literal):
                name = f"ptx_{number}"
                lines.append(f"{c_type(Type(element))} const {name} = {text};")
                text = name
            self._texts[number] = text, element
        result = self._as(self._result, self._call.element)
        return f"({{ {' '.join(lines)} {result}; }})" if lines else result

    def _sources(self, number: int) -> Sequence[int]:
        """The nodes that the C text of a node reads, repeated as often as it reads them."""
        node = self._graph.nodes[number]
        return [run[0] for run in _runs(node)] if isinstance(node, Joined) else self._graph.sources(number)

    def _node(self, number: int) -> tuple[str, str]:
        node = self._graph.nodes[number]
        if isinstance(node, Element):
            return self._call.operands[node.operand], self._call.types[node.operand].element
        element = _integer(node.width)
        if isinstance(node, Literal):
            return f"(({c_type(Type(element))})0x{node.bits:x}u{'ll' if node.width > _INT else ''})", element
        if isinstance(node, Joined):
            return self._joined(node), element
        step = INLINE[node.name]
        texts = [self._as(source, _held(kind)) for source, kind in zip(node.sources, step.takes, strict=True)]
        call, gives = self._call, Type(_held(step.gives))
        inner = ScalarCall(call.operation, texts, [Type(_held(kind)) for kind in step.takes], gives, call.pieces)
        text = step.render(inner)
        return f"(({c_type(gives)})({text}))" if gives.element in INTEGERS else f"({text})", gives.element

    def _joined(self, node: Joined) -> str:
        """C text that joins bits of several sources.

        Bits that move by the same distance are shifted and masked together.
        """
        wide = max(node.width, *(self._width(source) for source, _, _ in _runs(node)), 0) > _INT
        kind, suffix = ("uint64_t", "ull") if wide else ("uint32_t", "u")
        constant = sum(1 << index for index, part in enumerate(node.parts) if part == 1)
        terms = [f"0x{constant:x}{suffix}"] if constant else []
        for source, distance, mask in _runs(node):
            width = self._width(source)
            shifted = f"<< {distance}" if distance > 0 else f">> {-distance}" if distance else ""
            text = f"({kind})({self._as(source, _integer(width), unsigned=True)}) {shifted}".strip()
            full_mask = (1 << width) - 1
            reached = (full_mask << distance if distance > 0 else full_mask >> -distance) & ((1 << node.width) - 1)
            terms.append(f"({text})" if mask == reached else f"(({text}) & 0x{mask:x}{suffix})")
        return f"(({c_type(Type(_integer(node.width)))})({' | '.join(terms) or f'0{suffix}'}))"

    def _width(self, number: int) -> int:
        return self._graph.nodes[number].width

    def _as(self, number: int, target: str, *, unsigned: bool = False) -> str:
        """The C text of a node, converted to another type of the same width."""
        text, source = self._texts[number]
        if source == target:
            value = text
        else:
            call = self._call
            value = bitcast(ScalarCall(call.operation, [text], [Type(source)], Type(target), call.pieces))
        return f"(uint{INTEGERS[target]}_t)({value})" if unsigned else value


def _runs(node: Joined) -> list[tuple[int, int, int]]:
    """The nodes whose bits are joined, each with its shift and a mask of the resulting positions."""
    masks: dict[tuple[int, int], int] = {}
    for index, part in enumerate(node.parts):
        if isinstance(part, RegisterPart):
            key = part.node, index - part.place
            masks[key] = masks.get(key, 0) | 1 << index
    return [(source, distance, mask) for (source, distance), mask in masks.items()]


def _integer(width: int) -> str:
    """The integer type of at least ``width`` bits."""
    return _held(f"i{width}")


def _held(kind: str) -> str:
    """The element type whose C type holds values of ``kind``."""
    return "i8" if kind == "i4" else kind


def _refused(call: ScalarCall, reason: str) -> RefusedError:
    attributes = call.operation.attributes
    text = " ".join(str(attributes.get("asm_string")).split())
    return RefusedError(
        "inline assembly is for one kind of GPU; of PTX the CPU knows the instructions that docs/cpu.md lists;"
        f" {reason}: {text!r}, constraints {attributes.get('constraints')!r}; write it with Triton's own operations"
    )
