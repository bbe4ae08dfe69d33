"""Adds to a kernel the operations that check it, in SSA form; ``lower.messages`` writes them in C.

An access gets a ``silo.access`` before it, whose result is the mask of the elements that may be accessed. A value that
kernels should not use (a masked-off lane, a quotient by zero, a wrapped sum, a new NaN) goes through a ``silo.suspect``
operation, which can replace it by another value. The value is a fault only if that changes the kernel's results.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from silo.kinds.triton.cpu.analysis.value_properties import constant_scalar, load_parts, scalar_source
from silo.kinds.triton.cpu.checking.sites import Site, SiteKind, Use
from silo.kinds.triton.front.operations import arith, flow, further_dialects, tt
from silo.kinds.triton.front.operations.cpu.c_types import FLOATS, element_bytes
from silo.kinds.triton.front.operations.operation_table import ATOMICS
from silo.kinds.triton.front.ssa import Attribute, Block, Dense, Module, Operation, Region, Type, Value
from silo.kinds.triton.front.ssa_facts import control_flows, pointer_roots

__all__ = ["instrument"]

_LOADS = frozenset({tt.LOAD, tt.ATOMIC_LOAD})
_STORES = frozenset({tt.STORE, tt.ATOMIC_STORE})
_ACCESSES: Mapping[str, SiteKind] = {**dict.fromkeys(_LOADS, SiteKind.LOAD), **dict.fromkeys(_STORES, SiteKind.STORE)}
_RELAXED, _ACQUIRE, _RELEASE = 1, 2, 3  # Triton's MemSemantic; 4 is acquire and release
_DIVISIONS = frozenset({arith.DIVSI, arith.DIVUI, arith.REMSI, arith.REMUI, arith.FLOORDIVSI, arith.CEILDIVSI})
_WRAPPING: Mapping[str, str] = {arith.ADDI: "add", arith.SUBI: "sub", arith.MULI: "mul"}
# The operations through which a wrapped operand makes an address or a mask wrong. The search for operands of addresses
# and masks ends at every other operation: shifts, exclusive or, remainders and widening of unsigned numbers may belong
# to a hash, in which numbers wrap on purpose.
_CARRIES = frozenset(
    {
        *_WRAPPING,
        arith.CMPI,
        arith.DIVSI,
        arith.EXTSI,
        arith.INDEX_CAST,
        arith.MAXSI,
        arith.MINSI,
        arith.SELECT,
        tt.ADDPTR,
        tt.BITCAST,
        tt.BROADCAST,
        tt.CAT,
        tt.EXPAND_DIMS,
        tt.JOIN,
        tt.RESHAPE,
        tt.SPLAT,
        tt.SPLIT,
        tt.TRANS,
    }
)
_LOGIC = frozenset({arith.ANDI, arith.ORI, arith.XORI})
# Operations that never return a NaN unless an operand is a NaN.
_NO_NAN = frozenset({arith.CONSTANT, arith.SELECT, arith.NEGF, arith.BITCAST, tt.BITCAST, arith.ABSF})
_UNORDERED = 14  # the predicate of arith.cmpf that is true if an operand is a NaN
_HINTS = ("tt.divisibility", "tt.contiguity", "tt.constancy")
_LOOPS = frozenset({flow.FOR, flow.WHILE})


def instrument(module: Module, *, nan: bool = False) -> list[Site]:
    """Adds checks to ``module``, in place, and returns the sites (the watched operations), ordered by number.

    Args:
        module: a verified module of operations that the CPU supports.
        nan: also look for operations that make a NaN of numbers.
    """
    return _Instrumenting(module, nan=nan).run()


class _Instrumenting:
    def __init__(self, module: Module, *, nan: bool) -> None:
        self.module = module
        self.nan = nan
        self.sites: list[Site] = []
        self.roots = pointer_roots(module)
        self.addressing = _addressing(module)
        self.same: dict[Value, Value] = {}
        self.ordinals: Counter[str] = Counter()
        self.out: list[Operation] = []

    def run(self) -> list[Site]:
        for function in self.module.functions.values():
            blocks = function.regions[0].blocks
            for block in blocks:
                if block is not blocks[0]:
                    self._block(block, looped=True)
                else:
                    self._block(block, begins=function is self.module.entry)
        self._count_uses()
        return self.sites

    def _block(self, block: Block, *, looped: bool = False, begins: bool = False) -> None:
        outer, self.out = self.out, []
        if begins:
            self._add(further_dialects.BEGIN, [], None, block)
        elif looped:
            owner = block.region.owner if block.region is not None else None
            is_loop = owner is not None and owner.name in _LOOPS
            site = self._site(SiteKind.LOOP, owner if owner is not None and is_loop else block.operations[-1])
            self._add(further_dialects.STEP, [], None, block, site=site)
        for operation in list(block.operations):
            operation.operands = [self.same.get(value, value) for value in operation.operands]
            self._operation(operation, block)
        block.operations, self.out = self.out, outer

    def _operation(self, operation: Operation, block: Block) -> None:
        self.ordinals[operation.name] += 1
        name = operation.name
        if name in _ACCESSES:
            self._access(operation, block)
        elif name in ATOMICS:
            self._atomic(operation, block)
        elif name == tt.GATHER:
            self._gather(operation, block)
        elif name == tt.ASSERT:
            self._condition(SiteKind.ASSERT, operation, block, {"message": operation.attributes.get("message", "")})
        elif name == further_dialects.ASSUME:
            self._condition(SiteKind.ASSUME, operation, block, {})
        else:
            if name == tt.PRINT:
                # a check runs a kernel several times, but its messages must be printed once
                operation.attributes["checked"] = True
            self._inside(operation)
            self.out.append(operation)
            self._check_after(operation, block)

    def _inside(self, operation: Operation) -> None:
        if operation.name == flow.IF or operation.name in _LOOPS:
            for region in operation.regions:
                for inner in region.blocks:
                    self._block(inner, looped=operation.name in _LOOPS)

    # ---- memory accesses

    def _access(self, operation: Operation, block: Block) -> None:
        loads = operation.name in _LOADS
        pointer, mask, other = load_parts(operation) if loads else _store_parts(operation)
        use = (Use.READS if loads else Use.WRITES) | _ordering(operation, pointer)
        stored = operation.operands[1] if operation.name == tt.STORE else None
        allowed = self._allowed(_ACCESSES[operation.name], operation, use, pointer, mask, block, stored=stored)
        if not loads:
            operation.operands = [*operation.operands[:2], allowed]
            self.out.append(operation)
            return
        operation.operands = [pointer, allowed, *([] if other is None else [other])]
        operation.attributes["operandSegmentSizes"] = (1, 1, int(other is not None))
        self.out.append(operation)
        if mask is not None and other is None:
            self._fill(operation, mask, block)
        self._hint(operation, block)

    def _atomic(self, operation: Operation, block: Block) -> None:
        pointer = operation.operands[0]
        order = operation.attributes.get("sem", 4)
        use = Use.READS | Use.WRITES | Use.ATOMIC
        if _is_flag(operation.result.type) and order != _RELAXED:
            use |= Use.RELEASES if order != _ACQUIRE else Use.NONE
            use |= Use.ACQUIRES if order != _RELEASE else Use.NONE
        if operation.name == tt.ATOMIC_CAS:
            # This operation has no mask: if its address is forbidden, it accesses memory of the check instead.
            site = self._site(SiteKind.ATOMIC, operation, use=use, pointer=pointer)
            address = self._add(further_dialects.PLACE, [pointer], pointer.type, block, site=site)
            operation.operands = [address, *operation.operands[1:]]
            self.out.append(operation)
            return
        mask = operation.operands[2] if len(operation.operands) > 2 else None
        allowed = self._allowed(SiteKind.ATOMIC, operation, use, pointer, mask, block)
        operation.operands = [*operation.operands[:2], allowed]
        self.out.append(operation)
        if mask is not None:
            self._fill(operation, mask, block)

    def _allowed(
        self,
        kind: SiteKind,
        operation: Operation,
        use: Use,
        pointer: Value,
        mask: Value | None,
        block: Block,
        *,
        stored: Value | None = None,
    ) -> Value:
        """Adds the check of an access, and returns the mask of the elements that may be accessed.

        ``stored`` are the values of a plain store, None for any other access.
        """
        site = self._site(kind, operation, use=use, pointer=pointer)
        operands = [pointer] if mask is None else [pointer, mask]
        if stored is not None:
            operands.append(stored)
            if pointer.type.elements > 1:
                self._add(further_dialects.STORES, [], None, block, site=site)
        return self._add(
            further_dialects.ACCESS, operands, _like(pointer.type, "i1"), block, site=site, stores=stored is not None
        )

    def _gather(self, operation: Operation, block: Block) -> None:
        """Replaces the indices of a ``tl.gather`` by indices inside the tile.

        The first index outside of the tile ends the check.
        """
        source, indices = operation.operands
        axis = operation.attributes["axis"]
        assert isinstance(axis, int)
        extent = source.type.shape[axis]
        site = self._site(SiteKind.GATHER, operation, like=indices.type, details={"axis": axis, "extent": extent})
        operation.operands = [
            source,
            self._add(further_dialects.WITHIN, [indices], indices.type, block, site=site, extent=extent),
        ]
        self.out.append(operation)
        self._check_after(operation, block)

    # ---- values that kernels should not use

    def _check_after(self, operation: Operation, block: Block) -> None:
        name = operation.name
        if name in _DIVISIONS and constant_scalar(scalar_source(operation.operands[1]) or operation.operands[1]) in {
            None,
            0,
        }:
            self._suspect(SiteKind.DIVISION, operation, [operation.operands[1]], block)
        if name in _WRAPPING and operation.result in self.addressing and operation.result.type.element == "i32":
            self._suspect(SiteKind.WRAP, operation, operation.operands, block, how=_WRAPPING[name])
        if self.nan and _may_make_nan(operation):
            self._suspect(SiteKind.NAN, operation, self._nan_operands(operation, block), block)
        self._hint(operation, block)

    def _fill(self, operation: Operation, mask: Value, block: Block) -> None:
        if not operation.result.type.pointer and operation.result.uses and constant_scalar(mask) is not True:
            self._suspect(SiteKind.FILL, operation, [mask], block)

    def _suspect(self, kind: SiteKind, operation: Operation, facts: list[Value], block: Block, how: str = "") -> None:
        value = operation.result
        site = self._site(kind, operation, details={"how": how})
        current = self.same.get(value, value)
        checked = self._add(
            further_dialects.SUSPECT, [current, *facts], value.type, block, site=site, what=kind.value, how=how
        )
        self.same[value] = checked

    def _nan_operands(self, operation: Operation, block: Block) -> list[Value]:
        """Numbers or flags, in the shape of the result, that show whether an operand was already a NaN."""
        numbers = [value for value in operation.operands if value.type.element in FLOATS]
        if operation.name == tt.REDUCE:
            axis = operation.attributes["axis"]
            assert isinstance(axis, int)
            return [self._any(self._are_nan(numbers[0], block), axis, block)]
        if operation.name != tt.DOT:
            return numbers
        left, right, total = numbers
        rank = len(left.type.shape)
        rows = self._spread(self._any(self._are_nan(left, block), rank - 1, block), rank - 1, total.type, block)
        columns = self._spread(self._any(self._are_nan(right, block), rank - 2, block), rank - 2, total.type, block)
        return [rows, columns, total]

    def _are_nan(self, value: Value, block: Block) -> Value:
        return self._add(arith.CMPF, [value, value], _like(value.type, "i1"), block, predicate=_UNORDERED)

    def _any(self, flags: Value, axis: int, block: Block) -> Value:
        """Adds a reduction along ``axis`` that is true if any flag is set, and returns its result."""
        shape = flags.type.shape[:axis] + flags.type.shape[axis + 1 :]
        result = self._add(tt.REDUCE, [flags], Type("i1", shape, tensor=bool(shape)), block, axis=axis)
        reduce = result.owner
        assert reduce is not None
        inner = Block(region=Region(owner=reduce))
        assert inner.region is not None
        inner.region.blocks.append(inner)
        inner.arguments = [Value(f"silo{index}", Type("i1"), block=inner, index=index) for index in range(2)]
        either = Operation(arith.ORI, list(inner.arguments), [], {}, block=inner)
        either.results.append(Value("silo2", Type("i1"), either))
        inner.operations = [either, Operation(tt.REDUCE_RETURN, list(either.results), [], {}, block=inner)]
        reduce.regions.append(inner.region)
        return result

    def _spread(self, flags: Value, axis: int, like: Type, block: Block) -> Value:
        """Adds operations that repeat ``flags`` along a new axis, in the shape of ``like``, and returns the result."""
        shape = (*flags.type.shape[:axis], 1, *flags.type.shape[axis:])
        expanded = self._add(tt.EXPAND_DIMS, [flags], Type("i1", shape, tensor=True), block, axis=axis)
        return self._add(tt.BROADCAST, [expanded], _like(like, "i1"), block)

    # ---- conditions and alignment that the kernel promises (tl.assume, tl.multiple_of, ...)

    def _condition(self, kind: SiteKind, operation: Operation, block: Block, details: Mapping[str, object]) -> None:
        condition = operation.operands[0]
        site = self._site(kind, operation, details=details, like=condition.type)
        self._add(further_dialects.HOLDS, [condition], condition.type, block, site=site, what=kind.value)

    def _hint(self, operation: Operation, block: Block) -> None:
        promised = {name: _extents(operation.attributes.get(name)) for name in _HINTS if name in operation.attributes}
        if not promised or len(operation.results) != 1:
            return
        value = self.same.get(operation.result, operation.result)
        for axis in range(max(len(value.type.shape), 1)):
            parts = {name: extents[axis] for name, extents in promised.items() if axis < len(extents)}
            # Promises about other axes are not checked: the check walks the elements along the innermost axis that is
            # longer than 1.
            innermost = all(extent == 1 for extent in value.type.shape[axis + 1 :])
            if not innermost:
                continue
            if any(part > 1 for part in parts.values()):
                details = {"axis": axis, "address": value.type.pointer, **parts}
                pointer = value if value.type.pointer else None
                site = self._site(SiteKind.HINT, operation, pointer=pointer, details=details)
                numbers: dict[str, Attribute] = {name: parts.get(name, 1) for name in _HINTS}
                self._add(
                    further_dialects.HINT, [value], _like(value.type, "i1"), block, site=site, axis=axis, **numbers
                )

    # ---- creation of operations

    def _site(
        self,
        kind: SiteKind,
        operation: Operation,
        *,
        use: Use = Use.NONE,
        pointer: Value | None = None,
        like: Type | None = None,
        details: Mapping[str, object] | None = None,
    ) -> int:
        type_ = pointer.type if pointer is not None else like
        if type_ is None and operation.results:
            type_ = operation.results[0].type
        roots = self.roots.get(pointer) if pointer is not None else None
        size = 1
        if pointer is not None:
            size = element_bytes(pointer.type.element)
        site = Site(
            number=len(self.sites),
            kind=kind,
            operation=operation.name,
            place=operation.location,
            ordinal=max(self.ordinals[operation.name], 1),
            shape=type_.shape if type_ is not None and type_.tensor else (),
            bytes=size,
            use=use,
            roots=None if roots is None or -1 in roots else roots,
            details=details or {},
        )
        self.sites.append(site)
        return site.number

    def _add(
        self, name: str, operands: list[Value], result: Type | None, block: Block, **attributes: Attribute
    ) -> Value:
        operation = Operation(name, list(operands), [], dict(attributes), block=block)
        value = Value(f"silo{len(self.out)}", result or Type("i1"), operation)
        if result is not None:
            operation.results.append(value)
        self.out.append(operation)
        return value

    def _count_uses(self) -> None:
        operations = self.module.walk()
        for operation in operations:
            for value in [*operation.operands, *operation.results]:
                value.uses.clear()
        for operation in operations:
            for value in operation.operands:
                value.uses.append(operation)


def _store_parts(operation: Operation) -> tuple[Value, Value | None, None]:
    operands = operation.operands
    return operands[0], operands[2] if len(operands) > 2 else None, None


def _ordering(operation: Operation, pointer: Value) -> Use:
    """Flags of a load or store: none, or atomic; also acquiring or releasing if its value may synchronize programs."""
    atomic = operation.name in {tt.ATOMIC_LOAD, tt.ATOMIC_STORE}
    if not atomic and not operation.attributes.get("isVolatile"):
        return Use.NONE
    value_type = Type(pointer.type.element, pointer.type.shape, tensor=pointer.type.tensor)
    if not _is_flag(value_type) or (atomic and operation.attributes.get("sem") == _RELAXED):
        return Use.ATOMIC
    return Use.ATOMIC | (Use.ACQUIRES if operation.name in _LOADS else Use.RELEASES)


def _like(type_: Type, element: str) -> Type:
    return Type(element, type_.shape, tensor=type_.tensor)


def _is_flag(type_: Type) -> bool:
    """Whether a value of this type, a single integer, can be a lock, a flag or a counter."""
    return type_.elements == 1 and type_.element in {"i32", "i64", "i16", "i8"}


def _extents(attribute: Attribute | None) -> tuple[int, ...]:
    values = attribute.values if isinstance(attribute, Dense) else attribute
    if isinstance(values, int):
        return (values,)
    return tuple(value for value in values if isinstance(value, int)) if isinstance(values, tuple) else ()


def _may_make_nan(operation: Operation) -> bool:
    if operation.name in {tt.DOT, tt.REDUCE}:
        return len(operation.results) == 1 and operation.result.type.element in FLOATS
    if len(operation.results) != 1 or operation.regions or operation.name in _NO_NAN:
        return False
    dialect = operation.name.partition(".")[0]
    is_arithmetic = dialect in {"arith", "math"} or operation.name in {
        tt.ELEMENTWISE_INLINE_ASM,
        tt.EXTERN_ELEMENTWISE,
        tt.FP_TO_FP,
        tt.PRECISE_DIVF,
        tt.PRECISE_SQRT,
    }
    return is_arithmetic and operation.result.type.element in FLOATS and not operation.result.type.pointer


def _addressing(module: Module) -> set[Value]:
    """Every value from which an address or a mask of an access is computed.

    Values that reach the address only through an operation that hashes numbers or loads from memory are left out.
    """
    sources: dict[Value, list[Value]] = defaultdict(list)
    pending: list[Value] = []
    for operation in module.walk():
        for source, target in control_flows(module, operation):
            sources[target].append(source)
        if operation.name in _ACCESSES or operation.name in ATOMICS:
            pending += _addresses(operation)
    addresses: set[Value] = set()
    while pending:
        value = pending.pop()
        if value in addresses:
            continue
        addresses.add(value)
        pending += sources.get(value, ())
        operation = value.owner
        if operation is None:
            continue
        if operation.name in _CARRIES or (operation.name in _LOGIC and value.type.element == "i1"):
            pending += operation.operands
    return addresses


def _addresses(operation: Operation) -> list[Value]:
    if operation.name in _LOADS:
        pointer, mask, _ = load_parts(operation)
        return [pointer] if mask is None else [pointer, mask]
    if operation.name == tt.ATOMIC_CAS:
        return operation.operands[:1]
    return [operation.operands[0], *operation.operands[2:]]
