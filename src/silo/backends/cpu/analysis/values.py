"""The role of each operation for the scheduler: a view, an anchor, or an elementwise value."""

from __future__ import annotations

from silo.backends.cpu.analysis.combining import combining_operation
from silo.sources.triton.ssa import Block, Operation, Value

__all__ = [
    "BARRIERS",
    "DOTS",
    "EFFECTS",
    "FENCE",
    "NETWORK",
    "NO_EFFECT",
    "OPAQUE",
    "REGION_RETURNS",
    "TERMINATORS",
    "VIEWS",
    "VOLATILE_LOAD",
    "WHOLE",
    "WRITES",
    "arithmetic_cost",
    "constant_scalar",
    "defining_block",
    "dot_inputs",
    "first_tensor",
    "inner_axis",
    "is_ordered",
    "is_unit_reshape",
    "is_whole",
    "load_parts",
    "loaded_by",
    "recompute_cost",
    "scalar_source",
    "store_parts",
    "stored_operands",
]

VIEWS = frozenset({"tt.splat", "tt.expand_dims", "tt.broadcast", "tt.trans", "tt.reshape"})
# What ends the region of an operation that applies a function to elements.
REGION_RETURNS = frozenset({"tt.map_elementwise.return", "tt.reduce.return", "tt.scan.return"})
TERMINATORS = frozenset({"tt.return", "scf.yield", "scf.condition", "cf.br", "cf.cond_br"}) | REGION_RETURNS
# A sorting network, which `analysis.networks` puts in the place of its steps.
NETWORK = "silo.network"
# Operations that take whole tensors from memory and leave whole tensors there.
WHOLE = frozenset({NETWORK, "tt.call", "tt.map_elementwise"})
# What `analysis.waiting` puts in the place of volatile loads and barriers, and before stores.
VOLATILE_LOAD = "silo.volatile_load"
FENCE = "silo.fence"
# Operations whose loop nest is theirs alone and runs in order.
_ORDERED = frozenset(
    {
        VOLATILE_LOAD,
        "tt.assert",
        "tt.atomic_cas",
        "tt.atomic_rmw",
        "tt.histogram",
        "tt.print",
        "tt.scan",
        "tt.unsplat",
    }
)
DOTS = frozenset({"tt.dot", "tt.dot_scaled"})
# Operations whose results live in a buffer (or a variable) of their own.
OPAQUE = frozenset({"tt.reduce", "scf.for", "scf.if", "scf.while"}) | DOTS | WHOLE | _ORDERED
# Operations that write memory which others may read, or that no load may be moved across.
WRITES = frozenset({FENCE, VOLATILE_LOAD, "tt.atomic_cas", "tt.atomic_rmw", "tt.call", "tt.store"})
# Operations that the world sees, in the order of the program.
EFFECTS = WRITES | {"tt.assert", "tt.print"}
BARRIERS = frozenset({"ttg.barrier", "gpu.barrier", "ttg.local_barrier"})
# Hints and orderings that mean nothing where one thread runs a whole program, and launches one after the other.
NO_EFFECT = BARRIERS | {"llvm.intr.assume", "tt.grid_dependency_launch_dependents", "tt.grid_dependency_wait"}

_LOAD_COST = 2.0**20
_COST_LIMIT = 2.0**40
_DEAR = {
    "arith.divf": 8.0,
    "arith.divsi": 5.0,
    "arith.divui": 5.0,
    "arith.remsi": 5.0,
    "arith.remui": 5.0,
    "arith.remf": 20.0,
    "math.sqrt": 8.0,
    "math.rsqrt": 10.0,
    "math.absf": 1.0,
    "math.absi": 1.0,
    "math.fma": 1.0,
    "math.floor": 1.0,
    "math.ceil": 1.0,
    "tt.load": _LOAD_COST,
    "tt.precise_divf": 8.0,
    "tt.precise_sqrt": 8.0,
    "tt.clampf": 2.0,
    "tt.elementwise_inline_asm": 15.0,
    "tt.extern_elementwise": 15.0,
}


def _own_cost(operation: Operation) -> float:
    name = operation.name
    if name in VIEWS or name in {"arith.constant", "tt.make_range"}:
        return 0.0
    if name in _DEAR:
        return _DEAR[name]
    if name.startswith("math."):
        return 15.0
    element = operation.results[0].type.element if operation.results else ""
    if name == "arith.cmpi" or not element.startswith(("f", "bf")):
        return 0.5
    return 1.0


def recompute_cost(value: Value, known: dict[Value, float]) -> float:
    """About how many cheap operations evaluating one element of ``value`` costs, from buffers and scalars.

    ``known`` memoises over one function. A value that reads memory costs more than any threshold.
    """
    found = known.get(value)
    if found is not None:
        return found
    operation = value.owner
    if operation is None or not value.type.tensor or operation.name in OPAQUE:
        cost = 0.0
    else:
        cost = _own_cost(operation) + sum(recompute_cost(operand, known) for operand in operation.operands)
    cost = min(cost, _COST_LIMIT)
    known[value] = cost
    return cost


def arithmetic_cost(cost: float) -> float:
    """The part of a ``recompute_cost`` that is not reading memory."""
    return cost if cost >= _COST_LIMIT else cost % _LOAD_COST


def defining_block(value: Value) -> Block | None:
    """The block in which ``value`` comes to be."""
    return value.owner.block if value.owner is not None else value.block


def is_unit_reshape(operation: Operation) -> bool:
    """Whether a ``tt.reshape`` only adds or removes dimensions of extent one."""
    before = [extent for extent in operation.operands[0].type.shape if extent != 1]
    after = [extent for extent in operation.result.type.shape if extent != 1]
    return before == after


def is_ordered(operation: Operation) -> bool:
    """Whether the operation has a loop nest of its own that runs in order. Of scalars it is just one statement."""
    if not any(operand.type.tensor for operand in operation.operands):
        return False
    if operation.name == "tt.reduce":
        return combining_operation(operation) is None
    return operation.name in _ORDERED


def is_whole(operation: Operation) -> bool:
    """Whether the operation takes whole tensors from memory where code is optimized: running sums do there, too."""
    return operation.name in WHOLE or _is_running_sum(operation)


def _is_running_sum(operation: Operation) -> bool:
    """Whether a ``tt.scan`` adds along rows that lie in one piece, for which the runtime has functions."""
    if operation.name != "tt.scan" or operation.operands[0].type.element not in {"f32", "f64", "i32", "i64"}:
        return False
    combining = combining_operation(operation)
    axis = operation.attributes["axis"]
    assert isinstance(axis, int)
    shape = operation.operands[0].type.shape
    within = all(extent == 1 for extent in shape[axis + 1 :])
    return within and combining is not None and combining.name in {"arith.addf", "arith.addi"}


def first_tensor(operation: Operation) -> Value:
    """The operand whose indices an ordered nest runs over."""
    return next(operand for operand in operation.operands if operand.type.tensor)


def stored_operands(operation: Operation) -> frozenset[int]:
    """Positions of the operands that must lie in memory for one element of the result to be evaluated."""
    match operation.name:
        case "tt.gather":
            return frozenset({0})
        case "tt.cat":
            return frozenset({0, 1})
        case "tt.reshape" if not is_unit_reshape(operation):
            return frozenset({0})
        case _:
            return frozenset()


def inner_axis(view: Operation, axis: int | None) -> int | None:
    """Which axis of an operand follows the ``axis`` of the result; None where the operand has no such."""
    if axis is None or view.name == "tt.splat":
        return None
    if view.name == "tt.split":
        return axis
    if view.name == "tt.join":
        return axis if axis < len(view.operands[0].type.shape) else None
    if view.name not in VIEWS:
        return axis
    before, after = view.operands[0].type.shape, view.result.type.shape
    match view.name:
        case "tt.expand_dims":
            added = view.attributes["axis"]
            assert isinstance(added, int)
            return None if axis == added else axis - (axis > added)
        case "tt.broadcast":
            return axis if before[axis] == after[axis] else None
        case "tt.trans":
            order = view.attributes["order"]
            assert isinstance(order, tuple)
            source = order[axis]
            assert isinstance(source, int)
            return source
        case _:
            if after[axis] == 1 or not is_unit_reshape(view):
                return None
            rank = sum(extent != 1 for extent in after[:axis])
            return [place for place, extent in enumerate(before) if extent != 1][rank]


def constant_scalar(value: Value) -> int | float | bool | None:
    """The one value that a constant (scalar or splat) holds, else None."""
    operation = value.owner
    if operation is None or operation.name != "arith.constant":
        return None
    attribute = operation.attributes["value"]
    if isinstance(attribute, (int, float)):
        return attribute
    return getattr(attribute, "splat", None)


def scalar_source(value: Value) -> Value | None:
    """The scalar or splat constant that every element of ``value`` equals, where that shows, else None."""
    while value.type.tensor:
        operation = value.owner
        if operation is None:
            return None
        if operation.name == "arith.constant":
            return value if constant_scalar(value) is not None else None
        if operation.name not in VIEWS:
            return None
        value = operation.operands[0]
    return value


def load_parts(operation: Operation) -> tuple[Value, Value | None, Value | None]:
    """Pointer, mask and ``other`` of a ``tt.load``."""
    groups = operation.operand_segments()
    if len(groups) == 1:
        operands = [*operation.operands, None, None]
        pointer = operands[0]
        assert pointer is not None
        return pointer, operands[1], operands[2]
    return groups[0][0], (groups[1][0] if groups[1] else None), (groups[2][0] if groups[2] else None)


def store_parts(operation: Operation) -> tuple[Value, Value, Value | None]:
    """Pointer, value and mask of a ``tt.store``."""
    operands = operation.operands
    return operands[0], operands[1], (operands[2] if len(operands) > 2 else None)


def dot_inputs(operation: Operation) -> tuple[Value, ...]:
    """The operands of a dot but for the accumulator, the third: its factors, and their scales if it has any."""
    return (*operation.operands[:2], *operation.operands[3:])


def loaded_by(value: Value) -> Operation | None:
    """The ``tt.load`` that ``value`` comes from, by nothing but transpositions."""
    operation = value.owner
    while operation is not None and operation.name == "tt.trans":
        operation = operation.operands[0].owner
    return operation if operation is not None and operation.name == "tt.load" else None
