"""Evaluates values inside one loop nest.

Every statement is put at the outermost loop level that it depends on, so values that are the same for a whole row leave
the inner loop. The body of the innermost loop is lowered up to twice. The fast body is for the leading iterations, in
which every mask is known to be true (``limits`` give their number), and the slow body is for the rest. If a single
comparison limits the leading part, that comparison is known to be false in the rest, which is then called a ``tail``:
there a masked load has one value, and so have values computed from the load, so all of them are computed before the
loop. If several conditions limit the leading part (``ended``), at least one of them is false after it, and so is each
mask that requires all of them.

Evaluation recurses. A call that is nested too deep raises an exception that ends all calls around it. Then that call is
made first, with an empty stack, and the outermost call is repeated: it finds the results already computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from silo.kinds.triton.cpu import ops
from silo.kinds.triton.cpu.analysis.value_properties import fold, is_unit_reshape, load_parts, scalar_source
from silo.kinds.triton.cpu.lower.index import Index, combine, linear_index, remap
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.messages import checked_expression
from silo.kinds.triton.cpu.lower.nest_loops import NestLoops, conjunction, holds_within, unless_masked
from silo.kinds.triton.cpu.lower.uniform_masks import joined_mask
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.operations.further_dialects import MIRROR
from silo.kinds.triton.front.operations.operation_table import CHECKS, SHUFFLES, VIEWS
from silo.kinds.triton.front.ssa import Operation, Value

__all__ = ["Descent", "Nest"]


# ---- Calls that recurse along chains of values, without exceeding Python's stack ----


_DEEPEST = 48  # the most nested calls; each takes about five frames of Python's stack
_Find = Callable[[Value, Index], Any]
_Found = TypeVar("_Found")


class _DeepError(Exception):
    """Raised by a call that is nested too deep; holds that call, to be made before the outermost one is repeated."""

    def __init__(self, find: _Find, value: Value, index: Index) -> None:
        super().__init__(value.name)
        self.call = (find, value, index)


class Descent:
    """Limits the depth of recursive calls."""

    def __init__(self) -> None:
        self._depth = 0

    def call(self, find: Callable[[Value, Index], _Found], value: Value, index: Index) -> _Found:
        """Returns ``find(value, index)``; if calls nest too deep, the innermost one is made first, on an empty stack.

        After that, the outermost call is started again. So ``find`` must store its result in a table, and callers must
        look in that table before they call here.
        """
        if self._depth == 0:
            return self._call_from_outside(find, value, index)
        if self._depth >= _DEEPEST:
            raise _DeepError(find, value, index)
        self._depth += 1
        try:
            return find(value, index)
        finally:
            self._depth -= 1

    def _call_from_outside(self, find: Callable[[Value, Index], _Found], value: Value, index: Index) -> _Found:
        pending: list[tuple[_Find, Value, Index]] = []
        while True:
            current = pending[-1] if pending else (find, value, index)
            self._depth = 1
            try:
                result = current[0](*current[1:])
            except _DeepError as deep:
                pending.append(deep.call)
                continue
            finally:
                self._depth = 0
            if not pending:
                return result
            pending.pop()


# ---- Evaluates values inside one loop nest ----


# the most characters of the C text of an affine form: a longer text could have more than 256 nested parentheses, which
# a C compiler may refuse
_LONGEST_FORM = 1500
_WIDEST = 64  # the most conditions of a mask that is split into its conditions
_RANGE_START = re.compile(r"\(int64_t\)[0-9]+")
_BY_RECIPROCAL: Mapping[str, str] = {arith.DIVSI: "silo_divsi_by_i32", arith.REMSI: "silo_remsi_by_i32"}


class Nest(NestLoops):
    """Loops over ``shape`` in which values are evaluated.

    The values in ``computed`` have a buffer that this nest fills, so they are evaluated here instead of read from it.
    :class:`NestLoops` describes the other arguments.
    """

    def __init__(
        self,
        scope: LoweringScope,
        shape: tuple[int, ...],
        computed: set[Value] | None = None,
        cut: int | None = None,
        *,
        inner: int | None = None,
        in_runs: bool = False,
    ) -> None:
        super().__init__(scope, shape, cut=cut, inner=inner, in_runs=in_runs)
        self.computed = computed or set()
        self.joins_masks = False  # whether conditions that are the same for a row are merged (:func:`joined_mask`)
        self.wants_runs = False  # set if an address contains a quotient or a remainder of the innermost index
        self.fast = False
        # while the elements after the only limit are lowered (the tail): the C text of the limit, where the tail begins
        self.tail = ""
        # while the elements after several limits are lowered: these limits, at least one of which was reached
        self.ended: frozenset[str] = frozenset()
        # for each mask in ``untested``: the limits that the mask has set
        self._limits_of: dict[tuple[Value, Index], frozenset[str]] = {}
        # masks that the fast body does not test, because they are true for all elements before the lowest limit
        self.untested: dict[tuple[Value, Index], None] = {}
        self.limits: list[str] = []
        # the address of the row's first element, for each pointer that the fast body (before the lowest limit) reads in
        # order
        self.rows: dict[Value, str] = {}
        # for each limit that a comparison sets: the C text of the comparison's varying side at index 0; "" if that side
        # is uniform
        self.bases: dict[str, str] = {}
        # for values that this nest reads: the C text of the index from which on all elements of a value equal one
        # scalar (``Tail``)
        self._adopted: list[str] = []
        self._depends: dict[tuple[Value, Index], bool] = {}
        self._same_in_run: dict[tuple[Value, Index], bool] = {}
        self._outer_memo: dict[tuple[Value, Index], str] = {}
        self._inner_memo: dict[tuple[Value, Index], str] = {}
        self._affine: dict[tuple[Value, Index], tuple[str, str] | None] = {}
        self._widths: dict[Value, int] = {}  # the number of conditions in the conjunction of each mask
        self._descent = Descent()

    def begin_body(self, *, fast: bool, tail: str = "", ended: frozenset[str] = frozenset()) -> None:
        """Starts lowering the innermost body (again).

        The body of the tail (the elements after the only limit) must come last, because facts that hold only there
        would be wrong for another body.
        """
        self.fast = fast
        self.tail = tail
        self.ended = ended
        self._inner_memo = {}
        self._affine = {}
        # names defined for a run (consecutive indices with the same quotient) are unknown outside of it
        if self.runs is not None:
            outer_items = self._outer_memo.items()
            self._outer_memo = {key: name for key, name in outer_items if self.level(name) < self.depth - 1}
        self.clear_body()

    # ---- values

    def value(self, value: Value, index: Index) -> str:
        """The C name of ``value`` at ``index``."""
        value = self.scope.resolve(value)
        if not value.type.tensor:
            return self.scope.scalar(value)
        key = (value, index)
        for memo in (self._outer_memo, self._inner_memo):
            if key in memo:
                return memo[key]
        return self._descent.call(self._find_value, value, index)

    def _find_value(self, value: Value, index: Index) -> str:
        if self.runs is not None and self.fast and self.depends(value, index) and self._is_same_in_run(value, index):
            name = self.value(value, self._at_first(index))
        else:
            name = self._evaluate(value, index)
        memo = self._inner_memo if self.level(name) == self.depth else self._outer_memo
        memo[value, index] = name
        return name

    def _evaluate(self, value: Value, index: Index) -> str:
        scope = self.scope
        operation = value.owner
        is_filled_here = value in self.computed and index == self.index
        buffer = None if is_filled_here else scope.buffer(value)
        if buffer is not None:
            end = scope.tails.get(value)
            # a flat loop covers several axes, so it has no tail (elements after a limit) along one of them
            in_order = self.flat is None and index == self.index
            if end is not None and in_order and end.axis == self.axes[-1]:
                if self.fast:
                    self._adopted.append(end.limit)
                if self.tail == end.limit:
                    return end.element
            scope.lifetimes.touch(buffer)
            text = f"{buffer.name}[{self.linear(index, value.type.shape)}]"
            return self.put(ops.c_type(value.type), text, self.level(*index))
        if value in scope.offsets:
            return self._offset(value, index)
        assert operation is not None, f"{value.name} has no buffer"
        if operation.name == arith.CONSTANT:
            return self._constant(operation, value, index)
        if operation.name in VIEWS:
            return self._view(operation, index)
        if operation.name in SHUFFLES:
            return self._shuffled(operation, value, index)
        if operation.name == tt.MAKE_RANGE:
            text = f"((int32_t)({operation.attributes['start']} + {index[0]}))"
            return self.put("int32_t", text, self.level(*index))
        if operation.name == tt.LOAD:
            return self.load(operation, index)
        if operation.name == arith.CMPI and self._is_behind(operation, index):
            return "0"
        if operation.name == arith.SELECT and (self.tail or self.ended):
            condition, _, otherwise = operation.operands
            if self._has_ended(scope.resolve(condition), index) or self.value(condition, index) == "0":
                return self.value(otherwise, index)
        if (quotient := self._quotient_of_run(operation, index)) is not None:
            return quotient
        if operation.name == arith.SELECT and self.fast and (chosen := self._chosen(operation, index)):
            return chosen
        joins = self.joins_masks and operation.name == arith.ANDI and value.type.element == "i1"
        if joins and (joined := joined_mask(self, self.value, operation, index)) is not None:
            return self.put("uint8_t", f"(uint8_t)({joined})", self.depth)
        names = [self.value(operand, index) for operand in operation.operands]
        if operation.name in CHECKS:  # always in the innermost body, because a check has to look at each element
            text = checked_expression(scope, operation, names, linear_index(index, value.type.shape), index)
            return self.put(ops.c_type(value.type), text, self.depth)
        text = self._divided(operation, names) or scope.expression(operation, names)
        return self.put(ops.c_type(value.type), text, self.level(*names))

    def _is_behind(self, compare: Operation, index: Index) -> bool:
        """Whether ``compare`` is false in the whole part of the innermost loop that is being lowered.

        It is false there if it is the only comparison that limited the leading part: after several limits, it is
        unknown which of them was reached.
        """
        only = self.tail or (next(iter(self.ended)) if len(self.ended) == 1 else "")
        return bool(only) and self._limit_of(compare, index) == only

    def _chosen(self, operation: Operation, index: Index) -> str:
        """The element that a select operation takes in the fast body (before the lowest limit); "" if it is unknown.

        The result must be defined in the innermost body: a definition outside of it would also be visible to the slow
        body, in which the select may take its other operand.
        """
        condition, chosen, _ = operation.operands
        name = self.value(chosen, index)
        holds = self.level(name) == self.depth and self.holds(condition, index)
        return name if holds else ""

    def asserted(self, condition: Value, index: Index) -> str:
        """The C name of one element of an asserted condition.

        Masked code asserts "the condition, or not the mask". In the fast body (which tests no mask), an access with the
        same mask has already limited the loop to elements for which the mask is true, so the condition alone is tested,
        which may be the same for a whole run (consecutive indices with the same quotient).
        """
        condition = self.scope.resolve(condition)
        if self.fast and self.scope.buffer(condition) is None and (parts := unless_masked(condition)) is not None:
            selected, mask = parts
            name = self.value(selected, index)
            if self.holds(mask, index):
                return name
        return self.value(condition, index)

    def holds(self, condition: Value, index: Index) -> bool:
        """Whether a condition is true for all elements before the lowest of the limits found so far."""
        return holds_within(self.limits, condition, index, self._limit_set_by)

    def _limit_set_by(self, condition: Value, index: Index) -> str | None:
        condition = self.scope.resolve(condition)
        if self.scope.buffer(condition) is not None:
            return None
        operation = condition.owner
        compares = condition.type.tensor and operation is not None and operation.name == arith.CMPI
        if compares and operation is not None and (limit := self._limit_of(operation, index)):
            return limit
        return "" if self.depends(condition, index) else f"{self.value(condition, index)} ? limit : 0"

    def _divided(self, operation: Operation, names: list[str]) -> str | None:
        """A quotient or remainder by a divisor that is constant in the innermost loop, using its reciprocal.

        None for another operation, a type other than i32, or a dividend that is constant in that loop.
        """
        function = _BY_RECIPROCAL.get(operation.name)
        if function is None or operation.result.type.element != "i32" or self.scope.reference:
            return None
        dividend, divisor = names
        if self.level(dividend) < self.depth or self.level(divisor) == self.depth:
            return None
        self.scope.pieces.add("integer")
        reciprocal = self.put("double", f"silo_reciprocal_i32({divisor})", self.level(divisor))
        return f"{function}({dividend}, {divisor}, {reciprocal})"

    def _offset(self, value: Value, index: Index) -> str:
        start, offset = self.scope.offsets[value]
        name = self.value(start, index)
        ctype = ops.c_type(value.type)
        text = f"{name} + {offset}" if value.type.pointer else f"({ctype})((uint64_t){name} + (uint64_t){offset})"
        return self.put(ctype, text, self.level(name))

    def _constant(self, operation: Operation, value: Value, index: Index) -> str:
        attribute = operation.attributes["value"]
        single = getattr(attribute, "splat", attribute)
        if single is not None:
            assert isinstance(single, (int, float))
            return ops.literal(single, value.type.element)
        text = f"{self.scope.constant_array(value)}[{self.linear(index, value.type.shape)}]"
        return self.put(ops.c_type(value.type), text, self.level(*index))

    def _view(self, operation: Operation, index: Index) -> str:
        operand = operation.operands[0]
        if operation.name == tt.RESHAPE and not is_unit_reshape(operation):
            return self._reshaped(operation, index)
        return self.value(operand, remap(operation, index))

    def _reshaped(self, operation: Operation, index: Index) -> str:
        """One element of a reshape: the element at the same row-major position of the operand's buffer."""
        operand, result = operation.operands[0], operation.result
        offset = self.linear(index, result.type.shape)
        buffer = self.scope.buffer(operand)
        if buffer is None:
            source = scalar_source(operand)
            assert source is not None, f"{operand.name} is reshaped but not stored"
            return self.value(source, (index[0],) * len(source.type.shape))
        self.scope.lifetimes.touch(buffer)
        return self.put(ops.c_type(result.type), f"{buffer.name}[{offset}]", self.level(*index))

    def _shuffled(self, operation: Operation, value: Value, index: Index) -> str:
        """One element of an operation that rearranges elements."""
        ctype = ops.c_type(value.type)
        match operation.name:
            case tt.SPLIT:
                return self.value(operation.operands[0], (*index, str(value.index)))
            case tt.JOIN:
                left, right = (self.value(operand, index[:-1]) for operand in operation.operands)
                text = f"{index[-1]} == 0 ? {left} : {right}"
                return self.put(ctype, text, self.level(left, right, index[-1]))
            case tt.CAT:
                return self._cat(operation, index)
            case name if name == MIRROR:
                return self.value(operation.operands[0], self._mirror_image(operation, index))
            case _:
                return self._gathered(operation, index)

    def _mirror_image(self, operation: Operation, index: Index) -> Index:
        axis = operation.attributes["axis"]
        assert isinstance(axis, int)
        return (*index[:axis], self.mirrored(index[axis]), *index[axis + 1 :])

    def _stored(self, value: Value, index: Index) -> str:
        """The C text of one element of a value that is in memory, or that is a constant."""
        buffer = self.scope.buffer(value)
        if buffer is None:
            source = scalar_source(value)
            assert source is not None, f"{value.name} is not stored"
            return self.value(source, ("0",) * len(source.type.shape))
        self.scope.lifetimes.touch(buffer)
        return f"{buffer.name}[{self.linear(index, value.type.shape)}]"

    def _cat(self, operation: Operation, index: Index) -> str:
        left, right = operation.operands
        extent = left.type.shape[0]
        first, *rest = index
        second = self._stored(right, (f"({first} - {extent})", *rest))
        text = f"{first} < {extent} ? {self._stored(left, index)} : {second}"
        return self.put(ops.c_type(operation.result.type), text, self.level(*index))

    def _gathered(self, operation: Operation, index: Index) -> str:
        """One element of a gather.

        An index out of range reads element 0, so that no memory outside of the tile is read.
        """
        source, positions = operation.operands
        axis = operation.attributes["axis"]
        assert isinstance(axis, int)
        position = self.value(positions, index)
        extent = source.type.shape[axis]
        level = self.level(position, *index)
        clamped = self.put("int64_t", f"(uint64_t){position} < {extent} ? (int64_t){position} : 0", level)
        element = self._stored(source, (*index[:axis], clamped, *index[axis + 1 :]))
        return self.put(ops.c_type(operation.result.type), element, level)

    # ---- memory

    def load(self, operation: Operation, index: Index) -> str:
        """The C name of one element of a ``tt.load``."""
        pointer, mask, other = load_parts(operation)
        inner = self.depends(pointer, index)
        runs = self.runs
        in_run = runs is not None and self.fast and runs.first in index
        # For a value that is the same for a whole run (consecutive indices with the same quotient), the mask is the
        # same too, so the mask sets a limit as it would at the innermost index.
        if runs is not None and in_run:
            condition = self.mask(mask, tuple(self.inner if name == runs.first else name for name in index))
        else:
            condition = self.mask(mask, index, limiting=inner)
        if condition == "0":
            return self.value(other, index) if other is not None else ops.zero(operation.result.type)
        address, level = self.place(pointer, index)
        if self.fast and index == self.index and address.endswith(f"[{self.inner}]"):
            self.rows[pointer] = address.removesuffix(f"[{self.inner}]")
        # the mask limits the innermost loop, so the load stays inside of that loop, even if the address is the same in
        # all iterations
        if inner:
            level = self.depth
        # the mask limits the runs, so the load stays inside of the loop over runs, even if the address is the same in
        # all runs
        elif in_run and mask is not None:
            level = max(level, self.depth - 1)
        type_ = operation.result.type
        if condition:
            fill = self.value(other, index) if other is not None else ops.zero(type_)
            level = max(level, self.level(condition, fill))
            address = f"{condition} ? {address} : {fill}"
        return self.put(ops.c_type(type_), address, level)

    def place(self, pointer: Value, index: Index) -> tuple[str, int]:
        """The C lvalue that ``pointer`` points to at ``index``, and its loop level."""
        form = self.affine(pointer, index)
        if form is None:
            name = self.value(pointer, index)
            return f"*{name}", self.level(name)
        base, stride = form
        start = self.put(ops.c_type(pointer.type), base, self.text_level(base, stride))
        if stride == "0":
            return f"*{start}", self.level(start)
        step = self.inner if stride == "1" else f"{self.inner} * {stride}"
        return f"{start}[{step}]", self.depth

    def row_start(self, pointer: Value, index: Index) -> str | None:
        """The C name of a row's address, if ``pointer`` is consecutive along the innermost loop; else None."""
        form = self.affine(pointer, index)
        if form is None or form[1] != "1":
            return None
        level = self.text_level(form[0])
        return None if level == self.depth else self.put(ops.c_type(pointer.type), form[0], level)

    def mask(self, mask: Value | None, index: Index, *, limiting: bool = True) -> str:
        """The C condition under which an access happens at ``index``; "" if it always does.

        While the fast body (which tests no mask) is lowered, conditions that are true on a leading part of the
        innermost loop become limits. ``limiting`` must be False for an access that is moved out of that loop, because
        the access happens even if the loop runs no iteration.
        """
        if mask is None:
            return ""
        mask = self.scope.resolve(mask)
        if not limiting:
            return self._constant_mask(mask) or self.value(mask, index)
        if self._has_ended(mask, index):
            return "0"
        limit_count = len(self.limits)
        condition = fold((mask, index), self._mask_parts, self._condition)
        if self.fast and not condition:
            self._limits_of[mask, index] = frozenset(self.limits[limit_count:])
            self.untested[mask, index] = None
        return condition

    def _has_ended(self, mask: Value, index: Index) -> bool:
        """Whether ``mask`` is known to be false, because it requires each condition that set a limit in ``ended``.

        The elements after these limits are being lowered, so at least one of the conditions is false.
        """
        return bool(self.ended) and self._limits_of.get((mask, index), frozenset()) >= self.ended

    def _mask_parts(self, place: tuple[Value, Index]) -> list[tuple[Value, Index]]:
        """The operands of a mask that is a conjunction or a view; [] if the mask is not split in this body."""
        mask, index = place
        operation = mask.owner
        looks = (self.fast or self.tail) and self.scope.buffer(mask) is None and not self._constant_mask(mask)
        if not looks or operation is None or not mask.type.tensor:
            return []
        if fold(mask, _conjunction, lambda _, widths: min(sum(widths) or 1, _WIDEST + 1), self._widths) > _WIDEST:
            return []
        return [(self.scope.resolve(part), at) for part, at in conjunction(mask, index)]

    def _condition(self, place: tuple[Value, Index], parts: list[str]) -> str:
        """The C condition that a mask is true, made of the conditions of its parts."""
        mask, index = place
        if parts:
            if "0" in parts:
                return "0"
            conditions = [part for part in parts if part]
            return conditions[0] if len(conditions) == 1 else self._both(conditions)
        constant = self._constant_mask(mask)
        if not (self.fast or self.tail) or self.scope.buffer(mask) is not None:
            return constant or self.value(mask, index)
        if constant:
            return "" if constant != "0" else constant
        operation = mask.owner
        compares = operation is not None and mask.type.tensor and operation.name == arith.CMPI
        if compares and operation is not None and (limit := self._limit_of(operation, index)):
            if self.tail:
                return "0" if limit == self.tail else self.value(mask, index)
            self.limits.append(limit)
            return ""
        if not self.tail and not self.depends(mask, index):
            self.limits.append(f"{self.value(mask, index)} ? limit : 0")
            self.bases[self.limits[-1]] = ""
            return ""
        return self.value(mask, index)

    def _both(self, parts: list[str]) -> str:
        return self.put("uint8_t", " & ".join(parts), self.level(*parts)) if parts else ""

    @staticmethod
    def _constant_mask(mask: Value) -> str:
        source = scalar_source(mask)
        operation = source.owner if source is not None else None
        if operation is None or operation.name != arith.CONSTANT:
            return ""
        attribute = operation.attributes["value"]
        return "1" if getattr(attribute, "splat", attribute) else "0"

    def _limit_of(self, compare: Operation, index: Index) -> str:
        """The limit set by a signed comparison of an affine value with a loop-invariant one; "" for other comparisons.

        The limit is a C text for the number of leading iterations in which the comparison is true.
        """
        predicate = compare.attributes["predicate"]
        left, right = compare.operands
        if predicate in {4, 5}:  # a > b is b < a
            left, right = right, left
            predicate = 2 if predicate == 4 else 3
        if predicate not in {2, 3}:
            return ""
        low, high = self.affine(left, index), self.affine(right, index)
        if low is None or high is None:
            return ""
        # the comparison depends on the run (consecutive indices with the same quotient), so its limit would differ from
        # run to run
        if self.runs is not None and self.text_level(low[0], high[0]) == self.depth - 1:
            return ""
        inclusive = " + 1" if predicate == 3 else ""
        if low[1] == "1" and high[1] == "0":
            limit = f"nest_below({low[0]}, {high[0]}{inclusive}, limit)"
            self.bases[limit] = low[0]
            return limit
        # the comparison is true from some index on; the fast body, which tests no mask, can run only if that index is 0
        if low[1] == "0" and high[1] == "1":
            less = f"({low[0]}) {'<' if predicate == 2 else '<='} ({high[0]})"
            return f"{less} && nest_fits({high[0]}, limit) ? limit : 0"
        return ""

    def tail_limit(self) -> str:
        """The limit at which the tail begins; called once the fast body (before the lowest limit) is lowered.

        "" if the later elements are no tail, because no single comparison is false for all of them.
        """
        limits, _ = self.limit_statements()
        adopted = list(dict.fromkeys(self._adopted))
        if not limits and len(adopted) == 1:
            self.limits += adopted
            return adopted[0]
        # The values of a ``tl.arange`` always fit in 32 bits, so the comparison is false for all later elements.
        plain = len(limits) == 1 and _RANGE_START.fullmatch(self.bases.get(limits[0], ""))
        return limits[0] if plain else ""

    def ends(self, *, in_runs: bool = False) -> tuple[frozenset[str], str]:
        """The limits of the fast body (numbers of leading iterations), and a C condition on the iterations after them.

        Under this condition, one of the limiting comparisons is false in every later iteration. The set is empty if
        that cannot be shown. A comparison is false after its limit if its operands fit in 32 bits.

        If the loop has runs, the set is empty without ``in_runs``. With ``in_runs``, it has the limits of masks
        (:meth:`mask_limits`), and the caller must also check that the runs reach the lowest of them.
        """
        limits, extent = self.mask_limits(), self.loops_over[-1][1]
        if (self.runs is not None and not in_runs) or any(limit not in self.bases for limit in limits):
            return frozenset(), ""
        bases = dict.fromkeys(base for limit in limits if (base := self.bases[limit]))
        fits = [f"nest_fits({base}, {extent})" for base in bases if not _RANGE_START.fullmatch(base)]
        return frozenset(limits), " && ".join(fits) or "1"

    # ---- affine forms

    def depends(self, value: Value, index: Index) -> bool:
        """Whether ``value`` at ``index`` changes along the innermost loop."""
        value = self.scope.resolve(value)
        key = (value, index)
        dependence = self._depends.get(key)
        if dependence is None:
            dependence = self._descent.call(self._find_dependence, value, index)
        return dependence

    def _find_dependence(self, value: Value, index: Index) -> bool:
        dependence = self._depends[value, index] = self._changes(value, index)
        return dependence

    def _changes(self, value: Value, index: Index) -> bool:
        if not value.type.tensor or self.level(*index) < self.depth:
            return False
        if scalar_source(value) is not None and self.scope.buffer(value) is None:
            return False
        if value in self.scope.offsets:
            return self.depends(self.scope.offsets[value][0], index)
        operation = value.owner
        if operation is None or self.scope.buffer(value) is not None or operation.name == tt.MAKE_RANGE:
            return True
        if operation.name in VIEWS:
            if operation.name == tt.RESHAPE and not is_unit_reshape(operation):
                return True
            return self.depends(operation.operands[0], remap(operation, index))
        if operation.name == tt.SPLIT:
            return self.depends(operation.operands[0], (*index, str(value.index)))
        if operation.name in SHUFFLES or not operation.operands:
            return True
        return any(self.depends(operand, index) for operand in operation.operands)

    def affine(self, value: Value, index: Index) -> tuple[str, str] | None:
        """``value`` at ``index`` as C texts (base, stride), meaning base + stride x innermost index.

        None if it is not affine.

        Integers are computed in 64 bits, in which they never wrap; the code that computes the loop's limits checks that
        32-bit integers would not have wrapped either.
        """
        value = self.scope.resolve(value)
        key = (value, index)
        if key in self._affine:
            return self._affine[key]
        return self._descent.call(self._find_affine, value, index)

    def _find_affine(self, value: Value, index: Index) -> tuple[str, str] | None:
        form = self._form(value, index)
        if form is not None:
            form = (
                self._short(form[0], ops.c_type(value.type) if value.type.pointer else "int64_t"),
                self._short(form[1]),
            )
        self._affine[value, index] = form
        return form

    def _short(self, text: str, ctype: str = "int64_t") -> str:
        """The text of an affine form; a long text is replaced by the name of a constant that holds it."""
        return text if len(text) <= _LONGEST_FORM else self.put(ctype, text, self.text_level(text))

    def _form(self, value: Value, index: Index) -> tuple[str, str] | None:
        wide = "" if value.type.pointer else "(int64_t)"
        if not self.depends(value, index):
            return f"{wide}{self.value(value, index)}", "0"
        if self.scope.buffer(value) is not None and not (value in self.computed and index == self.index):
            if self.runs is not None and self.fast and self._is_same_in_run(value, index):
                return f"{wide}{self.value(value, index)}", "0"
            return None
        if value in self.scope.offsets:
            start, offset = self.scope.offsets[value]
            form = self.affine(start, index)
            return None if form is None else (f"({form[0]} + {offset})", form[1])
        operation = value.owner
        if operation is None:
            return None
        name = operation.name
        if self.runs is not None and self.fast and self._is_same_in_run(value, index):
            return f"{wide}{self.value(value, index)}", "0"
        if name == tt.MAKE_RANGE:
            return (f"(int64_t){operation.attributes['start']}", "1") if index[0] == self.inner else None
        if name in VIEWS:
            if name == tt.RESHAPE and not is_unit_reshape(operation):
                return None
            return self.affine(operation.operands[0], remap(operation, index))
        if name == arith.EXTSI:
            return self.affine(operation.operands[0], index)
        if name in _BY_RECIPROCAL and self.fast:
            return self._divided_form(operation, index)
        if name in {arith.ADDI, arith.SUBI, arith.MULI, tt.ADDPTR}:
            left, right = (self.affine(operand, index) for operand in operation.operands)
            if left is not None and right is not None:
                return combine(name, left, right)
        return None

    # ---- values that are constant within a run

    def _at_first(self, index: Index) -> Index:
        assert self.runs is not None
        return tuple(self.runs.first if name == self.inner else name for name in index)

    def _quotient_of_run(self, operation: Operation, index: Index) -> str | None:
        """The C name of a quotient that is the same for a whole run of indices, computed once for the run.

        None if the operands have another form.
        """
        if self.runs is None or not self.fast or operation.name != arith.DIVSI or self.runs.first not in index:
            return None
        form = self._divided_form(operation, tuple(self.inner if n == self.runs.first else n for n in index))
        if form is None:
            return None
        ctype = ops.c_type(operation.result.type)
        return self.put(ctype, f"({ctype}){form[0]}", self.depth - 1)

    def _is_same_in_run(self, value: Value, index: Index) -> bool:
        """Whether ``value`` is the same for all elements of a run (consecutive indices with the same quotient).

        Such values are computed from quotients, or loaded from addresses that are computed from quotients.
        """
        value = self.scope.resolve(value)
        if not self.depends(value, index):
            return True
        key = (value, index)
        sameness = self._same_in_run.get(key)
        if sameness is None:
            sameness = self._descent.call(self._find_sameness, value, index)
        return sameness

    def _find_sameness(self, value: Value, index: Index) -> bool:
        sameness = self._same_in_run[value, index] = self._stays(value, index)
        return sameness

    def _stays(self, value: Value, index: Index) -> bool:
        operation = value.owner
        if operation is None or value in self.computed or value in self.scope.offsets or not operation.operands:
            return False
        name = operation.name
        if name in VIEWS:
            if name == tt.RESHAPE and not is_unit_reshape(operation):
                return False
            return self._is_same_in_run(operation.operands[0], remap(operation, index))
        if name == arith.DIVSI and self._divided_form(operation, index) is not None:
            return True
        if name == tt.LOAD:
            pointer, mask, _ = load_parts(operation)
            if not self._is_same_in_run(pointer, index):
                return False
            return mask is None or self._is_same_in_run(mask, index) or self.mask(mask, index) == ""
        plain = name.startswith(("arith.", "math.")) or name == tt.ADDPTR
        return plain and all(self._is_same_in_run(operand, index) for operand in operation.operands)

    def _divided_form(self, operation: Operation, index: Index) -> tuple[str, str] | None:
        """A quotient or remainder as an affine form, within a run (consecutive indices with the same quotient).

        There the quotient is constant, and the remainder increases by one with each index.
        """
        form, divisor = (self.affine(operand, index) for operand in operation.operands)
        if form is None or divisor is None or form[1] != "1" or divisor[1] != "0":
            return None
        if self.runs is None:
            self.wants_runs = True
            return None
        # the operands themselves depend on the run, so the quotient cannot be computed before the run begins
        if self.text_level(form[0], divisor[0]) >= self.depth - 1:
            return None
        pair = self.runs.pair(form[0], divisor[0])
        self.level_of |= dict.fromkeys((pair.quotient, pair.remainder, self.runs.first), self.depth - 1)
        if operation.name == arith.DIVSI:
            return pair.quotient, "0"
        return f"({pair.remainder} - {self.runs.first})", "1"

    def limit_statements(self) -> tuple[list[str], int]:
        """The distinct limits found (numbers of leading iterations), and the extent of the innermost loop.

        Each limit is a C expression of the variable ``limit``, which holds the extent, or the value of the limit
        before.
        """
        limits = self.limits if self.runs is None else [*self.limits, *self.runs.limits]
        return list(dict.fromkeys(limits)), self.loops_over[-1][1]

    def mask_limits(self) -> list[str]:
        """The distinct limits that masks set.

        They come first in :meth:`limit_statements`, where the limits that runs set follow.
        """
        return list(dict.fromkeys(self.limits))

    def limits_set_by(self, mask: Value) -> set[str]:
        """The limits that ``mask`` sets at the innermost index; the nest's own limits stay as they are."""
        before = list(self.limits)
        self.mask(mask, self.index)
        own_limits = set(self.limits[len(before) :])
        self.limits[:] = before
        return own_limits


def _conjunction(mask: Value) -> list[Value]:
    """The masks that must be true for ``mask`` to be true."""
    operation = mask.owner
    if operation is None or not mask.type.tensor or operation.name not in VIEWS | {arith.ANDI}:
        return []
    return operation.operands
