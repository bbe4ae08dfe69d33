"""Writes values as base + sum of stride x index over every axis of a nest, as C texts."""

from __future__ import annotations

from collections.abc import Mapping

from silo.kinds.triton.cpu.analysis.value_properties import fold, scalar_source
from silo.kinds.triton.cpu.lower.index import remap
from silo.kinds.triton.cpu.lower.lowering_scope import LoweringScope
from silo.kinds.triton.cpu.lower.nest import Nest
from silo.kinds.triton.front.operations import arith, tt
from silo.kinds.triton.front.operations.operation_table import VIEWS
from silo.kinds.triton.front.ssa import Operation, Value

__all__ = ["AffineForms", "Axes", "Form", "view_axes"]

# the axis of the nest for each dimension of a value; None for a dimension of which only the index 0 is used
Axes = tuple[int | None, ...]
Form = tuple[str, dict[int, str]]  # the base, and the stride along each axis
_Place = tuple[Value, Axes]
_ONE = "(int64_t)1"
# Signed comparison predicates written as "less": the C operator, and whether the operands keep their order.
_LESS = {2: ("<", True), 3: ("<=", True), 4: ("<", False), 5: ("<=", False)}


class AffineForms:
    """Affine forms over all axes of a nest, for values that ``analysis.affine`` finds to be affine.

    With ``wrapped``, ``x % n`` is taken as ``x``, and the conditions for that are added to ``guards``. ``extents``
    holds, for an axis of which only leading indices are used, their number as a C text. Along the axis ``counted``,
    masks need not be true everywhere: the number of leading indices at which they are true is added to ``counts``.
    """

    def __init__(
        self,
        scope: LoweringScope,
        nest: Nest,
        *,
        wrapped: bool = False,
        extents: Mapping[int, str] | None = None,
        counted: int | None = None,
    ) -> None:
        self.scope = scope
        self.nest = nest
        self.wrapped = wrapped
        self.extents = extents or {}
        self.counted = counted
        self.guards: list[str] = []
        self.counts: list[str] = []

    def of(self, value: Value, axes: Axes) -> Form:
        """The base and the stride along each axis; ``axes`` holds the nest's axis for each dimension of ``value``."""
        return fold((self.scope.resolve(value), axes), self._parts, self._combined)

    def _parts(self, place: _Place) -> list[_Place]:
        """The values, each with its axes, whose affine forms determine the form of the value in ``place``."""
        value, axes = place
        if not value.type.tensor or scalar_source(value) is not None:
            return []
        if value in self.scope.offsets:
            return [(self.scope.resolve(self.scope.offsets[value][0]), axes)]
        operation = value.owner
        assert operation is not None
        if operation.name in VIEWS:
            axes = view_axes(operation, axes)
        return [(self.scope.resolve(operand), axes) for operand in operation.operands]

    def _combined(self, place: _Place, forms: list[Form]) -> Form:
        value, axes = place
        if not value.type.tensor:
            return self._wide(value, self.scope.scalar(value)), {}
        source = scalar_source(value)
        if source is not None:
            return self._wide(value, self.nest.value(source, ("0",) * len(source.type.shape))), {}
        if value in self.scope.offsets:
            base, strides = forms[0]
            return f"({base} + {self.scope.offsets[value][1]})", strides
        operation = value.owner
        assert operation is not None
        if operation.name == tt.MAKE_RANGE:
            return f"(int64_t){operation.attributes['start']}", {} if axes[0] is None else {axes[0]: _ONE}
        if operation.name in VIEWS or operation.name == arith.EXTSI:
            return forms[0]
        if operation.name == arith.REMSI:
            return self._unwrapped(*forms)
        (left, lefts), (right, rights) = forms
        if operation.name == arith.MULI:
            factor, scaled = (left, rights) if not lefts else (right, lefts)
            return f"({left} * {right})", {axis: f"({stride} * {factor})" for axis, stride in scaled.items()}
        sign = "-" if operation.name == arith.SUBI else "+"
        total = dict(lefts)
        for axis, stride in rights.items():
            plain = axis not in total and sign == "+"
            total[axis] = stride if plain else f"({total.get(axis, '0')} {sign} {stride})"
        return f"({left} {sign} {right})", total

    def _unwrapped(self, form: Form, modulus: Form) -> Form:
        assert self.wrapped
        low, high = self.extremes(form)
        self.guards.append(f"{low} >= 0 && {high} < {modulus[0]}")
        return form

    def extremes(self, form: Form) -> tuple[str, str]:
        """C texts of the smallest and the largest value of ``form`` over the nest."""
        base, strides = form
        low, high = [base], [base]
        for axis, stride in strides.items():
            last = f"({self.extents[axis]} - 1)" if axis in self.extents else str(self.nest.shape[axis] - 1)
            span = f"{stride} * {last}"
            low.append(f"({span} < 0 ? {span} : 0)")
            high.append(f"({span} > 0 ? {span} : 0)")
        return f"({' + '.join(low)})", f"({' + '.join(high)})"

    def guard_mask(self, mask: Value | None, axes: Axes) -> bool:
        """Adds to ``guards`` the condition that ``mask`` is true everywhere.

        Returns False if the condition cannot be written.
        """
        pending = [] if mask is None else [(self.scope.resolve(mask), axes)]
        seen: set[_Place] = set()
        while pending:
            current = pending.pop()
            if current in seen:
                continue
            seen.add(current)
            parts = self._guard(*current)
            if parts is None:
                return False
            pending.extend((self.scope.resolve(value), inner) for value, inner in reversed(parts))
        return True

    def _guard(self, mask: Value, axes: Axes) -> list[_Place] | None:
        """Adds the condition that ``mask`` is true everywhere to ``guards``, and returns [].

        For a conjunction or a view, returns its operands instead, whose conditions the caller must add. Returns None if
        the condition cannot be written.
        """
        source = scalar_source(mask)
        if source is not None:
            self.guards.append(self.nest.value(source, ("0",) * len(source.type.shape)))
            return []
        operation = mask.owner
        if operation is None:
            return None
        if operation.name in VIEWS:
            return [(operation.operands[0], view_axes(operation, axes))]
        if operation.name == arith.ANDI:
            return [(operand, axes) for operand in operation.operands]
        predicate = operation.attributes.get("predicate") if operation.name == arith.CMPI else None
        less = _LESS.get(predicate) if isinstance(predicate, int) else None
        if less is None:
            return None
        low_side, high_side = operation.operands if less[1] else reversed(operation.operands)
        low_form, high_form = self.of(low_side, axes), self.of(high_side, axes)
        if self.counted is not None and self._is_count(low_form, high_form):
            bound = f"{high_form[0]} + 1" if less[0] == "<=" else high_form[0]
            self.counts.append(f"{low_form[0]}, {bound}")
            return []
        low, high = self.extremes(low_form), self.extremes(high_form)
        # The guard also checks that both sides of the comparison fit in 32 bits: if they do not, the kernel's own
        # 32-bit arithmetic wraps.
        minimum = "(-2147483647 - 1)"
        self.guards.append(f"{low[1]} {less[0]} {high[0]} && {low[0]} >= {minimum} && {high[1]} <= 2147483647")
        return []

    def _is_count(self, low: Form, high: Form) -> bool:
        return not high[1] and list(low[1].items()) == [(self.counted, _ONE)]

    @staticmethod
    def _wide(value: Value, text: str) -> str:
        return text if value.type.pointer else f"(int64_t){text}"


def view_axes(operation: Operation, axes: Axes) -> Axes:
    """The nest's axis for each dimension of a view's operand."""
    names = tuple("0" if axis is None else str(axis + 1) for axis in axes)
    return tuple(None if name == "0" else int(name) - 1 for name in remap(operation, names))
