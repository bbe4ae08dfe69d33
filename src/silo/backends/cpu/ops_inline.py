"""Inline assembly: straight-line PTX over registers, such as kernels carry for its speed, as one C expression.

``ops_inline_program`` evaluates the text with the instructions of ``ops_inline_table``. A text with any other statement
is refused: it may mean anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from silo.backends.cpu.ops_call import Call, RefusedError
from silo.backends.cpu.ops_cast import bitcast
from silo.backends.cpu.ops_inline_program import Program, Shape, evaluate
from silo.backends.cpu.ops_inline_table import INLINE
from silo.backends.cpu.ops_inline_values import Element, Joined, Literal, Part
from silo.backends.cpu.ops_types import INTEGERS, c_type, element_bytes
from silo.sources.triton.ssa import Operation, Type

__all__ = ["inline_renderer"]

# What Triton before 3.9 writes for waits between launches, which follow one another here; its result means nothing.
_WAITS = frozenset({"griddepcontrol.wait", "griddepcontrol.launch_dependents"})
_MOST_PACK = 64


def inline_renderer(call: Call) -> str:
    """``tt.elementwise_inline_asm`` whose text is straight-line PTX of the instructions of ``INLINE``."""
    call.pointer_free()
    text = str(call.operation.attributes.get("asm_string"))
    if not call.operands and text.strip().removesuffix(";") in _WAITS:
        return "0"
    elements = [type_.element for type_ in (*call.types, call.result)]
    pack = call.attribute("packed_element", 1)
    if "i1" in elements or not 0 < pack <= _MOST_PACK:
        raise _refused(call, "it takes and gives numbers of 8 to 64 bits, at most 64 at a time")
    widths = [element_bytes(element) for element in elements]
    shape = Shape(tuple(widths[:-1]), widths[-1], pack, _used_bytes(call.operation, widths[-1]))
    try:
        program = evaluate(text, str(call.operation.attributes.get("constraints")), shape)
        return _Expression(call, program).text()
    except RefusedError as error:
        raise _refused(call, str(error)) from None


def _used_bytes(operation: Operation, width: int) -> int:
    """The bytes of an element of the result, from the lowest, that the kernel reads: it may truncate them."""
    uses = operation.results[0].uses if operation.results else []
    if not uses or any(use.name != "arith.trunci" for use in uses):
        return width
    return max(min(element_bytes(use.result.type.element), width) for use in uses)


class _Expression:
    """The C text of a program: nodes that are read once stand where they are read, all others are constants first."""

    def __init__(self, call: Call, program: Program) -> None:
        self._call, self._graph, self._result = call, program.graph, program.result
        self._texts: dict[int, tuple[str, str]] = {}  # the C text and the element type of each node

    def text(self) -> str:
        """An expression; with constants, one that GNU C allows: a block whose last statement is its value."""
        numbers = self._graph.below(self._result)
        reads = Counter(source for number in numbers for source in self._sources(number))
        lines: list[str] = []
        for number in numbers:
            text, element = self._node(number)
            # An operand may be any expression, but stands in the text once.
            if reads[number] > 1 and not text.isidentifier() and not isinstance(self._graph.nodes[number], Literal):
                name = f"ptx_{number}"
                lines.append(f"{c_type(Type(element))} const {name} = {text};")
                text = name
            self._texts[number] = text, element
        result = self._as(self._result, self._call.element)
        return f"({{ {' '.join(lines)} {result}; }})" if lines else result

    def _sources(self, number: int) -> Sequence[int]:
        """The nodes that the C text of a node reads, as often as it reads them."""
        node = self._graph.nodes[number]
        return [run[0] for run in _runs(node)] if isinstance(node, Joined) else self._graph.sources(number)

    def _node(self, number: int) -> tuple[str, str]:
        node = self._graph.nodes[number]
        if isinstance(node, Element):
            return self._call.operands[node.operand], self._call.types[node.operand].element
        if isinstance(node, Literal):
            return f"((int{8 * node.width}_t)0x{node.bits:x}u{'ll' if node.width == 8 else ''})", f"i{8 * node.width}"
        if isinstance(node, Joined):
            return self._joined(node), f"i{8 * node.width}"
        step = INLINE[node.name]
        texts = [self._as(source, kind) for source, kind in zip(node.sources, step.takes, strict=True)]
        call = self._call
        inner = Call(call.operation, texts, [Type(kind) for kind in step.takes], Type(step.gives), call.pieces)
        text = step.render(inner)
        return f"(({c_type(inner.result)})({text}))" if step.gives in INTEGERS else f"({text})", step.gives

    def _joined(self, node: Joined) -> str:
        kind = f"uint{max(8 * node.width, 32)}_t"
        suffix = "ull" if node.width == 8 else "u"
        numbers = sum(part << 8 * place for place, part in enumerate(node.parts) if isinstance(part, int))
        terms = [f"0x{numbers:x}{suffix}"] if numbers else []
        for source, start, count, place in _runs(node):
            width = f"i{8 * self._width(source)}"
            text = f"({kind})({self._as(source, width, unsigned=True)} >> {8 * start})"
            if start + count < self._width(source):
                text = f"({text} & 0x{(1 << 8 * count) - 1:x}{suffix})"
            terms.append(f"{text} << {8 * place}")
        return f"((int{8 * node.width}_t)({' | '.join(terms) or f'0{suffix}'}))"

    def _width(self, number: int) -> int:
        return self._graph.nodes[number].width

    def _as(self, number: int, target: str, *, unsigned: bool = False) -> str:
        """A node as another type of the same width."""
        text, source = self._texts[number]
        if source == target:
            found = text
        else:
            call = self._call
            found = bitcast(Call(call.operation, [text], [Type(source)], Type(target), call.pieces))
        return f"(uint{INTEGERS[target]}_t)({found})" if unsigned else found


def _runs(node: Joined) -> list[tuple[int, int, int, int]]:
    """Bytes of one node that follow one another: the node, its first byte, how many, and where they begin."""
    found: list[tuple[int, int, int, int]] = []
    for place, part in enumerate(node.parts):
        if not isinstance(part, Part):
            continue
        if found:
            source, start, count, begin = found[-1]
            if source == part.node and start + count == part.place and begin + count == place:
                found[-1] = source, start, count + 1, begin
                continue
        found.append((part.node, part.place, 1, place))
    return found


def _refused(call: Call, reason: str) -> RefusedError:
    attributes = call.operation.attributes
    text = " ".join(str(attributes.get("asm_string")).split())
    return RefusedError(
        "inline assembly is for one kind of GPU; of PTX the CPU knows the instructions that docs/cpu.md lists;"
        f" {reason}: {text!r}, constraints {attributes.get('constraints')!r}; write it with Triton's own operations"
    )
