"""The optimised schedule of one block: its loop nests, their sinks, and the values stored in buffers.

There are two passes. Forward: every anchor (store, reduction, carried value) joins the open nest if that is correct, or
else opens a new one. Backward: once it is known where each value is needed, decide whether the value is evaluated at
its uses or written to a buffer once.

Invariant: a load is evaluated before every store that follows it in the program and may touch the same memory, unless
both are in one nest and a run-time check (``NestGroup.checks``) covers the pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from silo.kinds.triton.cpu.analysis.affine import is_index_only, is_range_mask, is_structurally_affine
from silo.kinds.triton.cpu.analysis.costs import arithmetic_cost, recompute_cost
from silo.kinds.triton.cpu.analysis.value_properties import (
    constant_scalar,
    defining_block,
    dot_inputs,
    first_tensor,
    inner_axis,
    is_ordered,
    is_whole,
    load_parts,
    loaded_by,
    scalar_source,
    store_parts,
    stored_operands,
)
from silo.kinds.triton.cpu.schedule.block_schedule import (
    BlockSchedule,
    Branch,
    BufferFill,
    Carried,
    DotStep,
    Jump,
    Loop,
    NestGroup,
    OrderedSink,
    ReduceSink,
    ScalarStep,
    Sink,
    Step,
    StoreSink,
    WhileLoop,
    WholeStep,
    writes,
)
from silo.kinds.triton.cpu.schedule.demands import (
    Demand,
    inner_axis_of,
    lone_dot,
    one_by_one,
    read_across,
    reads_out_of_order,
    transposed_by,
    whole_demand,
)
from silo.kinds.triton.cpu.schedule.loop_values import NO_OFFSETS, Offsets, carried_of, jump_arguments
from silo.kinds.triton.front.operations import flow, tt
from silo.kinds.triton.front.operations.cpu.c_types import FLOATS
from silo.kinds.triton.front.operations.further_dialects import MIRROR
from silo.kinds.triton.front.operations.operation_table import (
    CONTROL,
    DOTS,
    EFFECTS,
    JUMPS,
    NO_EFFECT,
    OPAQUE,
    REGION_RETURNS,
    VIEWS,
    YIELDS,
)
from silo.kinds.triton.front.ssa import Block, Operation, Value

__all__ = ["plan_block"]

# A value whose cost is at most this is recomputed instead of stored. The limit is higher for integers and pointers:
# index arithmetic mostly leaves the inner loop, and addresses loaded from a buffer would no longer be known as
# consecutive.
_RECOMPUTE_LIMIT = 6.0
_RECOMPUTE_LIMIT_INDEX = 30.0
# The most pairs of accesses that one nest compares at run time: gcc's time grows with the square of the condition's
# length.
_MOST_CHECKS = 256


def plan_block(
    block: Block,
    external: Sequence[tuple[Value, bool]] = (),
    carried: Sequence[Carried] = (),
    offsets: Offsets = NO_OFFSETS,
    *,
    disjoint: bool = False,
) -> BlockSchedule:
    """Plans ``block``.

    ``external`` are the values that other blocks need (the ``free`` values of their schedules), ``carried`` are the
    values that the loop around ``block`` carries, and ``offsets`` those values of all enclosing loops that are an
    affine start plus an offset. ``disjoint`` is the promise of ``CpuOptions.elements_apart``.
    """
    barred: set[Value] = set()
    while True:
        planner = _Planner(block, external, carried, barred, offsets.within(carried), disjoint=disjoint)
        plan = planner.run()
        late = planner.overwritten_early()
        if not late:
            return plan
        barred |= late


class _Planner:
    """State of planning one block."""

    def __init__(
        self,
        block: Block,
        external: Sequence[tuple[Value, bool]],
        carried: Sequence[Carried],
        barred: set[Value],
        offsets: Offsets,
        *,
        disjoint: bool,
    ) -> None:
        self.block = block
        self.external = external
        self.carried = carried
        self.barred = barred  # carried tensors that a dot must not overwrite in place
        self.steps: list[Step] = []
        self.open: NestGroup | None = None
        self.position = {operation: index for index, operation in enumerate(block.operations)}
        # for each step that is not a nest: the position of its operation in the program
        self.step_position: dict[Step, int] = {}
        self.demands: dict[Value, list[Demand]] = {}
        self.free: dict[tuple[Value, bool], None] = {}
        self.costs: dict[tuple[Value, bool], float] = {}
        self.offsets = offsets
        self.disjoint = disjoint
        self.order: dict[Step | None, int] | None = None  # positions of the steps; None after a step was added
        self.writing: list[Step] = []  # the steps that write memory, in order
        self.loops: dict[Operation, Loop] = {}

    def run(self) -> BlockSchedule:
        """Runs both passes."""
        for operation in self.block.operations:
            self._forward(operation)
        self._close()
        for step in self.steps:
            if isinstance(step, NestGroup):
                step.inner = inner_axis_of(step)
        self.writing = [step for step in self.steps if (step.writers if isinstance(step, NestGroup) else writes(step))]
        self.loops = {step.operation: step for step in self.steps if isinstance(step, Loop)}
        self._start_demands()
        for operation in reversed(self.block.operations):
            self._schedule_operation(operation)
        self._stage_carried()
        self._leave_in_place()
        return BlockSchedule(self.steps, list(self.free))

    # ---- forward pass: anchors join nests

    def _forward(self, operation: Operation) -> None:
        name = operation.name
        if name in NO_EFFECT:
            return
        if name in REGION_RETURNS:
            self._step(Jump(operation), operation)
            return
        if name == tt.STORE and operation.operands[0].type.tensor:
            self._anchor(StoreSink(operation), operation.operands[0].type.shape)
        elif is_whole(operation):
            self._close()
            self._step(WholeStep(operation), operation)
        elif is_ordered(operation):
            self._close()
            self._anchor(OrderedSink(operation), first_tensor(operation).type.shape)
            self._close()
        elif name == tt.REDUCE:
            self._anchor(ReduceSink(operation), operation.operands[0].type.shape)
        elif name in DOTS:
            self._dot(operation)
        elif name in CONTROL:
            self._structured(operation)
        elif name in YIELDS:
            self._yield(operation)
        elif name in JUMPS:
            self._jump(operation)
        elif not operation.results or not operation.results[0].type.tensor:
            self._scalar(operation)

    def _scalar(self, operation: Operation) -> None:
        group = self.open
        if group is not None and (
            any(operand in group.reduced for operand in operation.operands)
            or operation.name in EFFECTS
            or (operation.name == tt.LOAD and group.stores)
        ):
            self._close()
        self._step(ScalarStep(operation), operation)

    def _step(self, step: Step, operation: Operation) -> None:
        self.steps.append(step)
        self.step_position[step] = self.position[operation]

    def _close(self) -> None:
        if self.open is not None:
            self.steps.append(self.open)
            self.open = None

    def _dot(self, operation: Operation) -> None:
        accumulator, result = operation.operands[2], operation.result
        target = self._carried_target(result)
        if target is None or target in self.barred:
            target = result
        fill = None
        # -0.0 does not count as zero: adding to 0.0 instead of -0.0 could change the sign of a zero result
        fresh = str(constant_scalar(accumulator)) in {"0", "0.0"}
        if accumulator is not target and not fresh:
            fill = BufferFill(accumulator, target)
            self._anchor(fill, result.type.shape)
        self._close()
        self._step(DotStep(operation, target, fill, fresh=fresh), operation)

    def _carried_target(self, value: Value) -> Value | None:
        """The carried tensor that ``value`` becomes in the next iteration, if that is its only use."""
        for entry in self.carried:
            if entry.kind == "buffer" and entry.yielded is value:
                return entry.argument if len(value.uses) == 1 else None
        return None

    def _structured(self, operation: Operation) -> None:
        if operation.name == flow.FOR:
            body = operation.regions[0].blocks[0]
            entries = carried_of(operation)
            for entry in entries:
                if entry.kind == "buffer":
                    self._anchor(BufferFill(entry.initial, entry.argument), entry.argument.type.shape)
            self._close()
            plan = plan_block(body, carried=entries, offsets=self.offsets, disjoint=self.disjoint)
            self._step(Loop(operation, entries, plan, lone_dot(plan, entries)), operation)
        elif operation.name == flow.IF:
            self._close()
            empty = BlockSchedule([], [])
            blocks = (region.blocks for region in operation.regions)
            plans = [self._inside(inner[0]) if inner else empty for inner in blocks]
            self._step(Branch(operation, plans[0], plans[1] if len(plans) > 1 else empty), operation)
        else:
            before, after = (region.blocks[0] for region in operation.regions)
            for initial, argument in zip(operation.operands, before.arguments, strict=True):
                if argument.type.tensor:
                    self._anchor(BufferFill(initial, argument), argument.type.shape)
            self._close()
            self._step(WhileLoop(operation, self._inside(before), self._inside(after)), operation)

    def _inside(self, block: Block) -> BlockSchedule:
        return plan_block(block, offsets=self.offsets, disjoint=self.disjoint)

    def _yield(self, operation: Operation) -> None:
        owner = self.block.region.owner if self.block.region is not None else None
        assert owner is not None
        if owner.name == flow.FOR:
            for entry in self.carried:
                done = any(isinstance(s, DotStep) and s.target is entry.argument for s in self.steps)
                if entry.kind == "buffer" and not done:
                    self._anchor(BufferFill(entry.yielded, entry.argument), entry.argument.type.shape)
        else:
            targets = owner.results
            values = operation.operands
            staged = False
            if operation.name == flow.CONDITION:
                values = values[1:]
            elif owner.name == flow.WHILE:
                targets, staged = owner.regions[0].blocks[0].arguments, True
            for value, target in zip(values, targets, strict=True):
                if target.type.tensor:
                    self._anchor(BufferFill(value, target, staged=staged), target.type.shape)
        self._close()

    def _jump(self, operation: Operation) -> None:
        for value, target in jump_arguments(operation):
            if target.type.tensor:
                self._anchor(BufferFill(value, target), target.type.shape)
        self._close()
        self._step(Jump(operation), operation)

    def _anchor(self, sink: Sink, shape: tuple[int, ...]) -> None:
        group = self.open
        if group is not None and not self._may_join(group, sink, shape):
            self._close()
        if self.open is None:
            self.open = NestGroup(shape)
        self.open.sinks.append(sink)

    def _may_join(self, group: NestGroup, sink: Sink, shape: tuple[int, ...]) -> bool:
        if group.shape != shape:
            return False
        filled = {other.target for other in group.sinks if isinstance(other, BufferFill)}
        # Values computed before the first store or reduction of the group cannot depend on any store or reduction of
        # the group.
        positions = [self.position[other.operation] for other in group.sinks if not isinstance(other, BufferFill)]
        reach = self._reach(_roots(sink), since=-1 if filled else min(positions))
        if reach & group.reduced or reach & filled:
            return False
        if isinstance(sink, StoreSink) and self._loads_from_reduced(group, sink.operation):
            return False
        stores = group.stores
        if not stores:
            return True
        first = self.position[stores[0]]
        makers = [value.owner for value in reach if value.owner is not None]
        if any(op.name == tt.LOAD and op.block is self.block and self.position[op] > first for op in makers):
            return False
        if isinstance(sink, StoreSink):
            # A load between two stores must run after the first store and before the second. If both stores were in one
            # nest, it could not.
            between = self.block.operations[first : self.position[sink.operation]]
            if any(operation.name == tt.LOAD for operation in between):
                return False
            if self.disjoint:
                return True
            checkable = self._is_checkable(sink.operation) and all(self._is_checkable(store) for store in stores)
            if not checkable or len(group.checks) + len(stores) > _MOST_CHECKS:
                return False
            group.checks.extend((store, sink.operation) for store in stores)
        return True

    def _loads_from_reduced(self, group: NestGroup, store: Operation) -> bool:
        """Whether ``store`` cannot join ``group``, because a load before ``store`` needs a result of the reductions."""
        reduced = group.reduced
        earlier = self.block.operations[: self.position[store]] if reduced else []
        return any(op.name == tt.LOAD and self._reach(op.operands) & reduced for op in earlier)

    def _is_checkable(self, access: Operation) -> bool:
        """Whether the addresses of ``access`` form a range that can be computed before its nest runs."""
        if access.name == tt.LOAD:
            return is_structurally_affine(access.operands[0], self.offsets.plain)
        pointer, _, mask = store_parts(access)
        return is_structurally_affine(pointer, self.offsets.plain) and is_index_only(mask)

    def _reach(self, roots: list[Value], *, since: int = -1) -> set[Value]:
        """Every value of this block that evaluating ``roots`` may visit.

        Operations before the position ``since`` are not followed.
        """
        seen: set[Value] = set()
        pending = list(roots)
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            operation = value.owner
            if operation is None or operation.block is not self.block or operation.name in OPAQUE:
                continue
            if self.position[operation] >= since:
                pending.extend(operation.operands)
        return seen

    # ---- backward pass: where values are stored

    def _start_demands(self) -> None:
        for step in self.steps:
            match step:
                case NestGroup():
                    for sink in step.sinks:
                        for root in _roots(sink):
                            self._need(root, whole_demand(step))
                case WholeStep(operation):
                    for operand in operation.operands:
                        self._need(operand, Demand(step, stored=True))
                case DotStep(operation):
                    for operand in dot_inputs(operation):
                        self._need(operand, Demand(step, stored=True))
                    self._need(step.target, Demand(step))
                case Loop():
                    self._need_free(step, step.body)
                    for entry in step.carried:
                        if entry.kind in {"invariant", "offset"}:
                            self._need(entry.initial, Demand(step))
                case Branch():
                    self._need_free(step, step.then)
                    self._need_free(step, step.otherwise)
                case WhileLoop():
                    self._need_free(step, step.before)
                    self._need_free(step, step.after)
                case ScalarStep() | Jump():
                    pass
        for value, stored in self.external:
            self._need(value, Demand(None, stored=stored))

    def _need_free(self, step: Step, plan: BlockSchedule) -> None:
        for value, stored in plan.free:
            self._need(value, Demand(step, stored=stored))

    def _need(self, value: Value, demand: Demand) -> None:
        if not value.type.tensor:
            return
        demands_of_value = self.demands.setdefault(value, [])
        if demand not in demands_of_value:
            demands_of_value.append(demand)
        if defining_block(value) is not self.block:
            self.free[value, demand.stored] = None

    def _schedule_operation(self, operation: Operation) -> None:
        if operation.name in OPAQUE:
            self._through_loop(operation)
            return
        for value in operation.results:
            demands = self.demands.get(value)
            if demands and value.type.tensor:
                self._place_value(operation, value, demands)

    def _through_loop(self, operation: Operation) -> None:
        """If a loop's result is a carried start plus an offset, passes the demands for the result to the start."""
        step = self.loops.get(operation)
        for entry in step.carried if step is not None else ():
            if entry.kind in {"invariant", "offset"}:
                for demand in self.demands.get(entry.result, []):
                    self._need(entry.initial, demand)

    def _place_value(self, operation: Operation, value: Value, demands: list[Demand]) -> None:
        order = self._order()
        is_load = operation.name == tt.LOAD
        first = min(demands, key=lambda demand: order[demand.step]).step
        across = read_across(operation, [demand.inner for demand in demands]) if is_load else None
        if across is not None:  # the tile is read along its rows into a buffer, which its users read along columns
            before = self._overwritten_by(operation, order, order[first]) or first
            user = transposed_by(demands, across) if self.disjoint else None
            group = NestGroup(
                value.type.shape,
                [BufferFill(value, value)],
                inner=across,
                transposed_by=user if user is before else None,
            )
            self._insert(group, before)
            self._pass_on(operation, [whole_demand(group)])
            return
        barrier = self._store_before(operation, order, order[first]) if is_load else None
        cost = recompute_cost(value, self.costs, rows=not any(one_by_one(demand.step) for demand in demands))
        limit = _RECOMPUTE_LIMIT if value.type.element in FLOATS and not value.type.pointer else _RECOMPUTE_LIMIT_INDEX
        places = {demand.step for demand in demands}
        nest = first if isinstance(first, NestGroup) and first.ordered is None else None
        lone_nest = nest is not None and len(places) == 1 and not self._repeats(value, nest, demands, cost)
        if len(demands) > 1 and arithmetic_cost(cost) > limit:  # the value would be computed at several indices
            lone_nest = False
        stored = any(demand.stored for demand in demands)
        again = cost <= limit and not reads_out_of_order(operation, demands)
        # several steps would load the value again, so no store may come before the last of them
        if again and is_load and len(places) > 1:
            again = self._store_before(operation, order, max(order[demand.step] for demand in demands)) is None
        if barrier is None and not stored and (lone_nest or again):
            self._pass_on(operation, demands)
            return
        fill = BufferFill(value, value)
        first_demands = [demand for demand in demands if demand.step is first]
        if (
            barrier is None
            and nest is not None
            and nest.shape == value.type.shape
            and all(demand.identity for demand in first_demands)
        ):
            nest.sinks.insert(0, fill)
            group = nest
        else:
            group = NestGroup(value.type.shape, [fill])
            before = barrier if barrier is not None else first
            self._insert(group, before)
        self._pass_on(operation, [whole_demand(group)])

    @staticmethod
    def _repeats(value: Value, group: NestGroup, demands: list[Demand], cost: float) -> bool:
        """Whether the innermost loop of ``group`` would compute a costly value again for every row."""
        if arithmetic_cost(cost) <= _RECOMPUTE_LIMIT or value.type.elements >= math.prod(group.shape):
            return False
        return any(not demand.identity and demand.inner is not None for demand in demands)

    def _insert(self, group: NestGroup, before: Step | None) -> None:
        """Inserts a nest right before the step ``before``; None means at the end."""
        order = self._order()
        self.steps.insert(order[before], group)
        self.order = None

    def _order(self) -> dict[Step | None, int]:
        if self.order is not None:
            return self.order
        order: dict[Step | None, int] = {step: index for index, step in enumerate(self.steps)}
        last = len(self.steps)
        if self.steps and isinstance(self.steps[-1], Jump):
            last -= 1  # values that other blocks need must be stored before the jump
        order[None] = last
        self.order = order
        return order

    def _pass_on(self, operation: Operation, demands: list[Demand]) -> None:
        stored = stored_operands(operation)
        for demand in demands:
            inner = inner_axis(operation, demand.inner)
            for position, operand in enumerate(operation.operands):
                identity = demand.identity and operand.type.shape == operation.results[0].type.shape
                identity = identity and operation.name not in VIEWS and operation.name != MIRROR
                passed = Demand(demand.step, identity=identity, inner=inner)
                self._need(operand, Demand(demand.step, stored=True) if position in stored else passed)

    def _overwritten_by(self, load: Operation, order: dict[Step | None, int], end: int) -> Step | None:
        """The first step before position ``end`` that contains a store which follows ``load`` in the program.

        None if no step contains such a store.
        """
        position = self.position[load]
        for step in self.writing:
            if order[step] >= end:
                return None
            if isinstance(step, NestGroup):
                if any(self.position[writer] > position for writer in step.writers):
                    return step
            elif self.step_position.get(step, -1) > position:
                return step
        return None

    def _store_before(self, load: Operation, order: dict[Step | None, int], last: int) -> Step | None:
        """The first step, up to and including number ``last``, with a store that follows ``load`` in the program.

        None if no step has such a store. None also if only step ``last`` has one and it cannot change the loaded
        elements: ``CpuOptions.elements_apart`` promises that, or run-time checks of the addresses, which are added to
        the step.
        """
        step = self.steps[last] if last < len(self.steps) else None
        if not isinstance(step, NestGroup):
            return self._overwritten_by(load, order, last + 1)
        if (earlier := self._overwritten_by(load, order, last)) is not None:
            return earlier
        later_writers = [writer for writer in step.writers if self.position[writer] > self.position[load]]
        if not later_writers or (
            self.disjoint and all(d.identity for d in self.demands[load.result] if d.step is step)
        ):
            return None
        pairs = [(load, store) for store in later_writers]
        if step.ordered is not None or not all(self._is_checkable(access) for pair in pairs for access in pair):
            return step
        step.checks.extend(pair for pair in pairs if pair not in step.checks)
        return None

    # ---- carried values

    def _stage_carried(self) -> None:
        """Marks the fills of carried tensors whose old value is still needed when the new value is written."""
        order = self._order()
        for step in self.steps:
            if not isinstance(step, NestGroup):
                continue
            for sink in step.sinks:
                if isinstance(sink, BufferFill) and any(entry.argument is sink.target for entry in self.carried):
                    sink.staged = self._is_read_after(sink.target, step, order) and not self._feeds_dot(sink)

    def _leave_in_place(self) -> None:
        """Moves the nests that copy a dot's operands into the dot, which runs them only if it cannot read in place.

        A nest is moved only if nothing is written between the nest and the dot.
        """
        for step in [step for step in self.steps if isinstance(step, DotStep)]:
            left, right = step.operation.operands[:2]
            if step.operation.name == tt.DOT and left is not right:
                step.left = self._take_copy(step, left)
                step.right = self._take_copy(step, right)

    def _take_copy(self, step: DotStep, value: Value) -> NestGroup | None:
        """Removes and returns the nest that only copies ``value`` from global memory for ``step``.

        None if there is no such nest.
        """
        operation = loaded_by(value)
        if operation is None:
            return None
        pointer, mask, other = load_parts(operation)
        affine = is_structurally_affine(pointer, self.offsets.wrapped, wrapped=True)
        is_range = affine and is_range_mask(mask, self.offsets.plain)
        nest = next((s for s in self.steps if isinstance(s, NestGroup) and _copies_only(s, value)), None)
        if nest is None or not is_range or (other is not None and scalar_source(other) is None):
            return None
        start, end = self.steps.index(nest), self.steps.index(step)
        if start > end or len(self.demands[value]) != 1 or any(writes(between) for between in self.steps[start:end]):
            return None
        self.steps.remove(nest)
        self.order = None
        return nest

    def _feeds_dot(self, fill: BufferFill) -> bool:
        return any(isinstance(step, DotStep) and step.accumulator is fill for step in self.steps)

    def _is_read_after(self, value: Value, step: Step, order: dict[Step | None, int]) -> bool:
        for demand in self.demands.get(value, []):
            if isinstance(demand.step, DotStep) and demand.step.target is value:
                continue
            if order[demand.step] > order[step] or (demand.step is step and not demand.identity):
                return True
        return False

    def overwritten_early(self) -> set[Value]:
        """The carried tensors that a dot overwrites although their old value is read later."""
        order = self._order()
        late: set[Value] = set()
        for step in self.steps:
            if not isinstance(step, DotStep) or step.target is step.operation.result:
                continue
            start: Step = step
            for other in self.steps:
                if isinstance(other, NestGroup) and step.accumulator in other.sinks:
                    start = other
            if self._is_read_after(step.target, start, order):
                late.add(step.target)
        return late


def _copies_only(group: NestGroup, value: Value) -> bool:
    """Whether ``group`` does nothing but fill the buffer of ``value``."""
    if len(group.sinks) != 1:
        return False
    (sink,) = group.sinks
    return isinstance(sink, BufferFill) and sink.value is value and sink.target is value


def _roots(sink: Sink) -> list[Value]:
    if isinstance(sink, BufferFill):
        return [sink.value]
    return list(sink.operation.operands)
