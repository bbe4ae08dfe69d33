"""Stores that bypass the caches: the innermost loop writes chunks to a cached buffer, which are copied to memory.

The decision is made at run time, from the number of bytes that the launch writes: below the threshold, the written data
may still be in a cache when it is read. Measured with 16 MB of results and 32 MB of operands, which fit in the CPU's
caches, bypassing the caches took 1.1 times as long; with four times as much data, which does not fit, it took 0.75
times as long.
"""

from __future__ import annotations

from dataclasses import dataclass

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.streams import enclosing_loops
from silo.kinds.triton.cpu.analysis.value_properties import store_parts
from silo.kinds.triton.cpu.loop_ir import Assign, Define, For, If, LoopBuffer, LoopCall, Statement
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.front.ssa import Operation, Type

__all__ = ["Streaming", "streaming_of"]

_THRESHOLD_BYTES = 32 << 20
_CHUNK_BYTES = 4096
_LEAST_ROW_BYTES = 256
# A body with more statements is limited by arithmetic, not by memory.
_MOST_STATEMENTS = 48
# The C variable that records whether a call has bypassed the caches. Only a call that has done so waits at its end for
# all its stores; for a small launch, waiting would take longer than its work.
_STREAMED = "streamed"


@dataclass(frozen=True, slots=True)
class _Stream:
    start: str  # the C name of the address of the row's first element
    buffer: LoopBuffer


@dataclass(frozen=True, slots=True)
class Streaming:
    """The temporary buffers for the stores of one nest.

    ``first`` is the C name of the index at which a chunk starts.
    """

    condition: str
    first: str
    elements: int
    streams: dict[Operation, _Stream]

    def place(self, store: Operation, inner: str) -> str:
        """The C lvalue in the temporary buffer for an element of ``store``."""
        return f"{self.streams[store].buffer.name}[{inner} - {self.first}]"

    def loops(
        self, scope: LoweringScope, inner: str, end: str, body: list[Statement], marks: tuple[tuple[str, str], ...]
    ) -> list[Statement]:
        """The innermost loop up to ``end`` in chunks."""
        last = scope.name("last")
        chunk: list[Statement] = [
            Define("int64_t", last, f"{end} - {self.first} < {self.elements} ? {end} : {self.first} + {self.elements}"),
            For(inner, self.first, last, body, simd=True, reductions=marks),
        ]
        for stream in self.streams.values():
            scope.lifetimes.touch(stream.buffer)
            size = stream.buffer.item_bytes
            call = f"silo_stream({stream.start} + {self.first}, {stream.buffer.name}, ({last} - {self.first}) * {size})"
            chunk.append(LoopCall(call))
        return [Assign(_STREAMED, "1"), For(self.first, "0", end, chunk, step=str(self.elements))]


def streaming_of(scope: LoweringScope, nest: Nest, stores: list[Operation], statements: int) -> Streaming | None:
    """The temporary buffers for all ``stores`` of a nest; None if these must not or should not bypass the caches.

    ``statements`` is the number of statements of the innermost body.
    """
    if not stores or statements > _MOST_STATEMENTS or not scope.streamable.issuperset(stores):
        return None
    types = [store_parts(store)[1].type for store in stores]
    # rounding to f16 takes longer than the memory accesses
    if any(type_.pointer or type_.element == "f16" for type_ in types):
        return None
    extent = nest.shape[nest.axes[-1]]
    sizes = [ops.element_bytes(type_.element) for type_ in types]
    if extent * min(sizes) < _LEAST_ROW_BYTES:
        return None
    starts: list[str] = []
    for store in stores:
        start = nest.row_start(store_parts(store)[0], nest.index)
        if start is None:
            return None
        starts.append(start)
    elements = min(extent, _CHUNK_BYTES // max(sizes))
    streams = {
        store: _Stream(start, scope.new_buffer(Type(type_.element, (elements,), tensor=True)))
        for store, start, type_ in zip(stores, starts, types, strict=True)
    }
    written = max(size * type_.elements for size, type_ in zip(sizes, types, strict=True))
    trips = [scope.trips[loop] for loop in enclosing_loops(stores[0]) if loop is not None]
    programs = "".join(f" * (double){factor}" for factor in ["grid[1]", "grid[2]", *trips])
    condition = f"(double)grid[0]{programs} >= {-(-_THRESHOLD_BYTES // written)}"
    if "stream" not in scope.pieces:
        scope.pieces.add("stream")
        scope.locals.append(f"int32_t {_STREAMED} = 0;")
        scope.finish.append(If(_STREAMED, [LoopCall("silo_stream_end()")]))
    return Streaming(condition, scope.name("first"), elements, streams)
