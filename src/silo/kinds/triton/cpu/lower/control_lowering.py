"""Lowers the planned steps of a function: scalars, loops, branches and jumps."""

from __future__ import annotations

from collections.abc import Sequence

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.orders import jump_may_wait, may_wait
from silo.kinds.triton.cpu.analysis.streams import enclosing_loops
from silo.kinds.triton.cpu.analysis.value_properties import load_parts, store_parts
from silo.kinds.triton.cpu.loop_ir import (
    Assign,
    Break,
    Define,
    For,
    Forever,
    Goto,
    If,
    Label,
    LoopCall,
    Return,
    Statement,
)
from silo.kinds.triton.cpu.lower.atomic import atomic_call, atomic_mask, volatile_load
from silo.kinds.triton.cpu.lower.direct_sums import DIRECT_STEPS, lower_direct_sum
from silo.kinds.triton.cpu.lower.dot import leading_products, lower_dot
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.materialized import lower_whole
from silo.kinds.triton.cpu.lower.messages import (
    checked_expression,
    checked_statement,
    flush_statement,
    message_statements,
)
from silo.kinds.triton.cpu.lower.row_loops import buffers_in, goes_along_rows, rows_outside
from silo.kinds.triton.cpu.lower.transposed_parts import lower_transposes
from silo.kinds.triton.cpu.schedule.block_schedule import (
    BlockSchedule,
    Branch,
    Carried,
    DotStep,
    Jump,
    Loop,
    NestGroup,
    ScalarStep,
    Step,
    WhileLoop,
    WholeStep,
)
from silo.kinds.triton.cpu.schedule.loop_values import jump_arguments
from silo.kinds.triton.front.operations import arith, flow, tt
from silo.kinds.triton.front.operations.further_dialects import CLOCK, FENCE, PART_FIRST, PART_ROWS, VOLATILE_LOAD
from silo.kinds.triton.front.operations.operation_table import ATOMICS, CHECKS, MESSAGES, REGION_RETURNS
from silo.kinds.triton.front.ssa import Block, Operation, Value

__all__ = ["NEXT_PROGRAM", "FunctionLowering"]


NEXT_PROGRAM = "next_program"  # the label at the end of one program, to which a return jumps
_AXES = "xyz"


class FunctionLowering:
    """Lowers the steps of one function: the kernel, a function that it calls, or the region of an operation."""

    def __init__(
        self,
        scope: LoweringScope,
        blocks: list[Block],
        *,
        kernel: bool = False,
        targets: Sequence[str] = (),
        status: str = "0",
    ) -> None:
        self.scope = scope
        self.kernel = kernel
        self.status = status  # the error code that a normal return gives
        self.targets = targets  # C lvalues for the results of a region that is applied to elements
        self.labels = {block: f"block{number}" for number, block in enumerate(blocks)}

    def function(self, plans: list[BlockSchedule]) -> None:
        """Lowers all blocks of the function, in order."""
        if len(plans) == 1:
            self.steps(plans[0])
            return
        for block in list(self.labels)[1:]:
            for argument in block.arguments:
                if argument.type.tensor:
                    self.scope.buffer_for(argument)
                else:
                    self._variable(argument)
        for (_, label), plan in zip(self.labels.items(), plans, strict=True):
            self.scope.emit(Label(label))
            self.steps(plan)

    def steps(self, plan: BlockSchedule) -> None:
        """Lowers every step of ``plan``, in order."""
        transposes: list[NestGroup] = []
        lowered = 0  # the number of following steps that are already lowered
        for number, step in enumerate(plan.steps):
            self.scope.lifetimes.advance()
            if lowered:
                lowered -= 1
                continue
            if not transposes and lower_direct_sum(self.scope, plan.steps[number : number + DIRECT_STEPS]):
                lowered = DIRECT_STEPS - 1
                continue
            next_ = plan.steps[number + 1] if number + 1 < len(plan.steps) else None
            if isinstance(step, NestGroup) and _waits(step, next_):
                transposes.append(step)
                continue
            match step:
                case NestGroup():
                    lower_transposes(self.scope, transposes, step)
                    transposes = []
                case ScalarStep(operation):
                    self._scalar(operation)
                case WholeStep(operation):
                    lower_whole(self.scope, operation)
                case DotStep():
                    lower_dot(self.scope, step)
                case Loop():
                    self._loop(step)
                case WhileLoop():
                    self._while(step)
                case Branch():
                    self._branch(step)
                case Jump(operation):
                    self._jump(operation)

    # ---- scalars

    def _variable(self, value: Value, start: str | None = None) -> str:
        name = self.scope.name("v")
        self.scope.emit(Define(ops.c_type(value.type), name, start, mutable=True))
        self.scope.bind(value, name)
        return name

    def _scalar(self, operation: Operation) -> None:
        scope = self.scope
        if operation.name == tt.STORE:
            pointer, value, mask = store_parts(operation)
            condition = scope.scalar(mask) if mask is not None else ""
            scope.emit(Assign(f"*{scope.scalar(pointer)}", scope.scalar(value), condition))
            return
        if operation.name == FENCE:
            scope.emit(LoopCall("__atomic_thread_fence(__ATOMIC_ACQ_REL)"))
            return
        if operation.name in ATOMICS:
            mask = atomic_mask(operation)
            condition = scope.scalar(mask) if mask is not None else ""
            call = atomic_call(scope, operation, [scope.scalar(operand) for operand in operation.operands])
            if not operation.result.uses:
                scope.emit(If(condition, [LoopCall(call)]) if condition else LoopCall(call))
                return
            scope.bind(operation.result, scope.name("s"))
            result = scope.scalar(operation.result)
            scope.emit(Define(ops.c_type(operation.result.type), result, "0", mutable=True))
            scope.emit(Assign(result, call, condition))
            return
        if operation.name in MESSAGES:
            values = [scope.scalar(operand) for operand in operation.operands]
            for statement in message_statements(scope, operation, "".join(values)):
                scope.emit(statement)
            if operation.name == tt.PRINT:
                scope.emit(flush_statement())
            return
        if operation.name in CHECKS:
            statement = checked_statement(scope, operation)
            if statement is not None:
                scope.emit(statement)
                return
        result = operation.result
        text = self._scalar_text(operation)
        if operation.name == arith.CONSTANT:
            scope.bind(result, text)
            return
        name = scope.name("s")
        scope.emit(Define(ops.c_type(result.type), name, text))
        scope.bind(result, name)

    def _scalar_text(self, operation: Operation) -> str:
        scope = self.scope
        match operation.name:
            case tt.GET_PROGRAM_ID:
                return f"program_{_AXES[_axis(operation)]}"
            case tt.GET_NUM_PROGRAMS:
                return f"(int32_t)grid[{_axis(operation)}]"
            case tt.LOAD:
                pointer, mask, other = load_parts(operation)
                text = f"*{scope.scalar(pointer)}"
                if mask is None:
                    return text
                fill = scope.scalar(other) if other is not None else ops.zero(operation.result.type)
                return f"{scope.scalar(mask)} ? {text} : {fill}"
            case name if name == CLOCK:
                scope.pieces.add("clock")
                return "silo_nanoseconds()"
            case name if name == PART_FIRST:
                return f"(int32_t)({operation.attributes['rows']} * part_first / parts)"
            case name if name == PART_ROWS:
                return f"(int32_t)({operation.attributes['rows']} * (part_end - part_first) / parts)"
            case name if name == VOLATILE_LOAD:
                texts = [scope.scalar(part) if part is not None else "" for part in load_parts(operation)]
                return volatile_load(scope, operation.result.type, *texts)
            case name if name in CHECKS:
                return checked_expression(scope, operation, [scope.scalar(operand) for operand in operation.operands])
            case _:
                return scope.expression(operation, [scope.scalar(operand) for operand in operation.operands])

    def _assign_all(self, pairs: list[tuple[str, Value]]) -> None:
        """Assigns to variables as if at the same time: every value is read before any variable is written."""
        temporaries: list[tuple[str, str]] = []
        for target, value in pairs:
            name = self.scope.name("y")
            self.scope.emit(Define(ops.c_type(value.type), name, self.scope.scalar(value)))
            temporaries.append((target, name))
        for target, name in temporaries:
            self.scope.emit(Assign(target, name))

    # ---- loops and branches

    def _loop(self, step: Loop) -> None:
        scope = self.scope
        operation = step.operation
        variable = operation.regions[0].blocks[0].arguments[0]
        start, end, stride = (scope.scalar(value) for value in operation.operands[:3])
        scalars: list[tuple[str, Value]] = []
        offsets: list[tuple[str, Value]] = []
        for entry in step.carried:
            self._enter(entry, scalars, offsets)
        counter = scope.name("n")
        ctype = ops.c_type(variable.type)
        unsigned = bool(operation.attributes.get("unsignedCmp"))
        convert = f"(int64_t)(u{ctype})" if unsigned else "(int64_t)"
        first, last, add = (f"{convert}{text}" for text in (start, end, stride))

        if any(operation in enclosing_loops(store) for store in scope.streamable):
            trips = scope.trips[operation] = scope.name("trips")
            scope.emit(Define("int64_t", trips, f"({last} - {first}) / {add}"))
            scope.emit(LoopCall(f"(void){trips}"))

        def advance() -> None:
            self._assign_all(scalars)
            for name, amount in offsets:
                scope.emit(Assign(name, f"{name} + (int64_t){self._uniform(amount)}"))

        if step.dot is not None:
            leading_counter = scope.name("n")
            scope.emit(Define("int64_t", leading_counter, first, mutable=True))
            scope.bind(variable, f"(({ctype}){leading_counter})")
            uniform = BlockSchedule([inner for inner in step.body.steps if isinstance(inner, ScalarStep)], [])
            leading_products(scope, step.dot, (leading_counter, last, add), lambda: self.steps(uniform), advance)
            first = leading_counter
        scope.bind(variable, f"(({ctype}){counter})")
        with scope.collecting() as body, scope.lifetimes.loop():
            for entry in step.carried:
                buffer = scope.buffer(entry.argument) if entry.kind == "buffer" else None
                if buffer is not None:
                    scope.lifetimes.touch(buffer)
            self.steps(step.body)
            scope.lifetimes.advance()
            scope.unstage(entry.argument for entry in step.carried)
            with scope.collecting() as advanced:
                advance()
        if step.dot is not None or not self._rows_first(step, body, advanced, For(counter, first, last, [], step=add)):
            scope.emit(For(counter, first, last, [*body, *advanced], step=add))
        for entry in step.carried:
            if entry.kind == "scalar":
                scope.bind(entry.result, scope.scalar(entry.argument))
            elif entry.kind == "offset":
                scope.offsets[entry.result] = scope.offsets[entry.argument]
            else:
                scope.same[entry.result] = entry.argument

    def _rows_first(self, step: Loop, body: list[Statement], advanced: list[Statement], loop: For) -> bool:
        """Emits a loop with the rows outermost: all iterations for the first row, then for the second, and so on.

        Returns False, and emits nothing, unless the loop only computes rows independently of each other, and successive
        iterations read each row's memory in order.
        """
        scope = self.scope
        if scope.reference or not goes_along_rows(step.operation, step.carried):
            return False
        row = scope.name("i")
        rows, inner = rows_outside(body, scope.lifetimes.spans, row)
        if not rows:
            return False
        for buffer in buffers_in(body, list(scope.lifetimes.spans)):
            # Each row runs all loops of the body in turn, so the buffers of all these loops are in use at the same
            # time. The lifetimes are extended to here, because buffers with separate lifetimes may share memory.
            scope.lifetimes.touch(buffer)
        starts = [scope.offsets[entry.argument][1] for entry in step.carried if entry.kind == "offset"]
        again: list[Statement] = [Assign(name, "0") for name in starts]
        row_loop = For(loop.variable, loop.start, loop.end, [*inner, *advanced], step=loop.step)
        scope.emit(For(row, "0", rows, [*again, row_loop]))
        return True

    def _enter(self, entry: Carried, scalars: list[tuple[str, Value]], offsets: list[tuple[str, Value]]) -> None:
        scope = self.scope
        if entry.kind == "scalar":
            scalars.append((self._variable(entry.argument, scope.scalar(entry.initial)), entry.yielded))
        elif entry.kind == "invariant":
            scope.same[entry.argument] = entry.initial
        elif entry.kind == "offset":
            assert entry.step is not None
            name = scope.name("o")
            scope.emit(Define("int64_t", name, "0", mutable=True))
            scope.offsets[entry.argument] = (entry.initial, name)
            offsets.append((name, entry.step))

    def _uniform(self, value: Value) -> str:
        """The C text of a scalar, or of the value of a splat constant."""
        if not value.type.tensor:
            return self.scope.scalar(value)
        assert value.owner is not None
        attribute = value.owner.attributes["value"]
        single = getattr(attribute, "splat", attribute)
        assert isinstance(single, (int, float))
        return ops.literal(single, value.type.element)

    def _while(self, step: WhileLoop) -> None:
        scope = self.scope
        operation = step.operation
        before, after = (region.blocks[0] for region in operation.regions)
        variables: list[str] = []
        for initial, argument in zip(operation.operands, before.arguments, strict=True):
            if not argument.type.tensor:
                variables.append(self._variable(argument, scope.scalar(initial)))
        results = [self._variable(result) for result in operation.results if not result.type.tensor]
        with scope.collecting() as body, scope.lifetimes.loop():
            for argument in before.arguments:
                buffer = scope.buffer(argument) if argument.type.tensor else None
                if buffer is not None:
                    scope.lifetimes.touch(buffer)
            self.steps(step.before)
            condition = before.operations[-1].operands
            values = [value for value in condition[1:] if not value.type.tensor]
            self._assign_all(list(zip(results, values, strict=True)))
            scope.emit(If(f"!{scope.scalar(condition[0])}", [Break()]))
            for argument, result in zip(after.arguments, operation.results, strict=True):
                scope.same[argument] = result
            self.steps(step.after)
            scope.lifetimes.advance()
            scope.unstage(before.arguments)
            yielded = [value for value in after.operations[-1].operands if not value.type.tensor]
            self._assign_all(list(zip(variables, yielded, strict=True)))
            if may_wait(operation):
                self._wait()
        scope.emit(Forever(body))

    def _wait(self) -> None:
        """Emits a call that lets other programs run, in each iteration of a loop that may wait for another program."""
        self.scope.pieces.add("wait")
        self.scope.emit(LoopCall("silo_wait(context)"))

    def _branch(self, step: Branch) -> None:
        scope = self.scope
        operation = step.operation
        results = operation.results
        variables = {result: self._variable(result) for result in results if not result.type.tensor}
        for result in results:
            if result.type.tensor:
                scope.buffer_for(result)
        bodies: list[list[Statement]] = []
        for plan, region in zip((step.then, step.otherwise), operation.regions, strict=False):
            with scope.collecting() as body:
                self.steps(plan)
                if region.blocks:
                    yielded = region.blocks[0].operations[-1].operands
                    pairs = [(variables[r], v) for r, v in zip(results, yielded, strict=True) if r in variables]
                    self._assign_all(pairs)
            bodies.append(body)
        scope.emit(If(scope.scalar(operation.operands[0]), bodies[0], bodies[1] if len(bodies) > 1 else []))

    def _jump(self, operation: Operation) -> None:
        scope = self.scope
        if operation.name in REGION_RETURNS:
            for target, value in zip(self.targets, operation.operands, strict=True):
                scope.emit(Assign(f"*{target}", scope.scalar(value)))
            scope.emit(Return(self.status))
            return
        if operation.name == tt.RETURN:
            for value, target in jump_arguments(operation):
                if not value.type.tensor:
                    scope.emit(Assign(scope.scalar(target), scope.scalar(value)))
            if not self.kernel:
                scope.emit(Return(self.status))
            elif len(self.labels) > 1:
                scope.emit(Goto(NEXT_PROGRAM))
            return
        back = operation.block is not None and jump_may_wait(operation.block, list(self.labels))
        if operation.name == flow.BR:
            self._pass(operation.operands, operation.successors[0])
            if back:
                self._wait()
            scope.emit(Goto(self.labels[operation.successors[0]]))
            return
        condition, *edges = operation.operand_segments()
        sides: list[list[Statement]] = []
        for values, successor in zip(edges, operation.successors, strict=True):
            with scope.collecting() as side:
                self._pass(list(values), successor)
                if back:
                    self._wait()
                scope.emit(Goto(self.labels[successor]))
            sides.append(side)
        scope.emit(If(scope.scalar(condition[0]), sides[0], sides[1]))

    def _pass(self, values: list[Value], successor: Block) -> None:
        pairs = [
            (self.scope.scalar(argument), value)
            for value, argument in zip(values, successor.arguments, strict=True)
            if not argument.type.tensor
        ]
        self._assign_all(pairs)


def _axis(operation: Operation) -> int:
    axis = operation.attributes["axis"]
    assert isinstance(axis, int)
    return axis


def _waits(step: NestGroup, next_: Step | None) -> bool:
    """Whether nest ``step`` only transposes a tile, right before the nest that uses it or before another such nest."""
    user = step.transposed_by
    if user is None or len(step.sinks) != 1:
        return False
    return next_ is user or (isinstance(next_, NestGroup) and next_.transposed_by is user and len(next_.sinks) == 1)
