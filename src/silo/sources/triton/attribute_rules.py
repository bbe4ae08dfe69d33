"""The attributes that each operation may carry, and their kinds.

What is built on a module reads attributes by name and writes some into C text; a text may come from a stranger. So
an operation carries what Triton 3.6 to 3.9 give it and nothing else, each of the kind that is expected there. Of an
operation that is not listed nothing is known; it is refused where code is to be made of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from silo.sources.triton.mlir_floats import FLOAT_FORMATS
from silo.sources.triton.ssa import Attribute, Dense, Operation
from silo.sources.triton.type_rules import malformed

__all__ = ["ATTRIBUTE_RULES", "OWN", "check_attributes"]

OWN = "silo."  # what Silo's own operations are called by, which passes add; a text has none
_MAX_RANK = 64
_INTEGER = re.compile(r"i([0-9]{1,3})")
_MAX_TEXT = 1 << 16  # characters of one string; far above any message or instruction


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value is in words, and whether one is so."""

    words: str
    fits: Callable[[Operation, Attribute], bool]


@dataclass(frozen=True, slots=True)
class Rules:
    """The attributes of one operation: those that it must have, and those that it may."""

    needed: Mapping[str, Kind]
    allowed: Mapping[str, Kind]


def check_attributes(operation: Operation) -> None:
    """Refuse an attribute that the operation has no use for, one of another kind, and the lack of one that it needs.

    Raises:
        SourceError: the first that is so.
    """
    if operation.name.startswith(OWN):
        raise malformed(operation, "it is an operation that Silo itself adds, and stands in no text")
    rules = ATTRIBUTE_RULES.get(operation.name)
    if rules is None:
        return
    attributes = operation.attributes
    for name in rules.needed:
        if name not in attributes:
            raise malformed(operation, f"it has the attribute {name}")
    for name, value in attributes.items():
        kind = rules.allowed.get(name) or _discardable(name)
        if kind is None:
            known = ", ".join(sorted(rules.allowed)) or "none of its own"
            raise malformed(operation, f"the attribute {name!r} is none that Triton gives it; known: {known}")
        if not kind.fits(operation, value):
            raise malformed(operation, f"its attribute {name} is {kind.words}")


# ---- kinds


def _is_int(value: Attribute) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integer(low: int, high: int) -> Kind:
    def fits(_operation: Operation, value: Attribute) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return Kind(f"an integer from {low} to {high}", fits)


def _integers(count: Callable[[Operation], int | None]) -> Kind:
    """An array of 32-bit integers, as many as ``count`` says (None: any number)."""

    def fits(operation: Operation, value: Attribute) -> bool:
        wanted = count(operation)
        return (
            isinstance(value, tuple)
            and (wanted is None or len(value) == wanted)
            and all(_INT32.fits(operation, item) for item in value)
        )

    return Kind("an array of integers, one for each of what it is about", fits)


def _any_number(_operation: Operation) -> None:
    return None


def _segments(groups: int, largest: int | None = None) -> Kind:
    """How many operands each of ``groups`` has; they are all of the operands."""

    def fits(operation: Operation, value: Attribute) -> bool:
        if not isinstance(value, tuple) or len(value) != groups:
            return False
        sizes = [item for item in value if isinstance(item, int) and not isinstance(item, bool) and item >= 0]
        most = max(sizes, default=0)
        return len(sizes) == groups and sum(sizes) == len(operation.operands) and (largest is None or most <= largest)

    return Kind(f"the sizes of {groups} groups that its operands come in", fits)


def _is_constant(operation: Operation, value: Attribute) -> bool:
    """A number of the result's type, or a tensor of them."""
    if len(operation.results) != 1:
        return False
    kind = operation.result.type
    if isinstance(value, Dense):
        return value.type == kind and all(_is_number(item, kind.element) for item in value.values)
    return not kind.tensor and not kind.pointer and _is_number(value, kind.element)


def _is_number(value: Attribute, element: str) -> bool:
    if element in FLOAT_FORMATS:
        return isinstance(value, float)
    if element == "i1":
        return isinstance(value, int) and value in (-1, 0, 1)
    bits = 64 if element == "index" else _width(element)
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << (bits - 1)) <= value < 1 << bits


def _width(element: str) -> int:
    match = _INTEGER.fullmatch(element)
    return int(match.group(1)) if match is not None else 1


def _is_hint(_operation: Operation, value: Attribute) -> bool:
    values = value.values if isinstance(value, Dense) else value if isinstance(value, tuple) else (value,)
    return len(values) <= _MAX_RANK and all(_is_int(item) for item in values)


def _is_axis(operation: Operation, value: Attribute) -> bool:
    if not isinstance(value, int) or isinstance(value, bool) or not operation.operands:
        return False
    return 0 <= value < len(operation.operands[0].type.shape)


def _are_argument_facts(operation: Operation, value: Attribute) -> bool:
    """One dictionary of facts for each argument; of results there are as many as anybody wants, and none is read."""
    del operation
    return isinstance(value, tuple) and all(
        isinstance(facts, Mapping) and all(_is_fact(name, fact) for name, fact in facts.items()) for facts in value
    )


def _is_fact(name: str, fact: Attribute) -> bool:
    kind = _ARGUMENT_FACTS.get(name)
    return kind is not None and kind.fits(_NOBODY, fact)


_NOBODY = Operation("", [], [], {})

_FLAG = Kind("a flag: true or false", lambda _operation, value: isinstance(value, bool))
_TEXT = Kind(
    f"a string of at most {_MAX_TEXT} characters",
    lambda _operation, value: isinstance(value, str) and len(value) <= _MAX_TEXT,
)
_SYMBOL = Kind("a symbol", lambda _operation, value: isinstance(value, str) and value.startswith("@"))
# Hints of a dialect, kept as their text, which nothing reads.
_OPAQUE = Kind("a hint of its dialect", lambda _operation, value: isinstance(value, str) and value.startswith("#"))
_UNREAD = Kind(
    "a number, a flag or an attribute of a dialect",
    lambda _operation, value: isinstance(value, bool | int | tuple) or (isinstance(value, str) and value[:1] == "#"),
)
_INT32 = _integer(-(2**31), 2**31 - 1)
_COUNT = _integer(0, 2**31 - 1)
_CONSTANT = Kind("a constant of the result's type", _is_constant)
_HINT = Kind("an integer for each axis", _is_hint)
_AXIS = Kind("an axis of its operand", _is_axis)
_SPACE_OR_HINT = Kind("a bit for each space, or a hint", lambda _operation, value: _is_int(value) or _is_opaque(value))
_VISIBILITY = Kind(
    "public, private or nested", lambda _operation, value: isinstance(value, str) and value in _VISIBILITIES
)
_VISIBILITIES = frozenset({"public", "private", "nested"})
_FACTS = Kind("the facts that are known of each argument", _are_argument_facts)


def _is_opaque(value: Attribute) -> bool:
    return isinstance(value, str) and value.startswith("#")


# ---- what any operation may carry: facts and wishes that Triton's language and its passes leave, none of which is
# written anywhere

_HINTS = re.compile(r"tt\.(?:divisibility|contiguity|constancy)(?:_arg[0-9]{1,6})?")
_ARGUMENT_FACTS: Mapping[str, Kind] = MappingProxyType(
    {
        "tt.divisibility": _HINT,
        "tt.contiguity": _HINT,
        "tt.constancy": _HINT,
        "tt.pointer_range": _HINT,
        "tt.nv_tma_desc": _HINT,
    }
)
_EVERYWHERE: Mapping[str, Kind] = MappingProxyType(
    {
        "tt.num_stages": _INT32,
        "tt.loop_unroll_factor": _INT32,
        "tt.disallow_acc_multi_buffer": _FLAG,
        "tt.flatten": _FLAG,
        "tt.warp_specialize": _FLAG,
        "tt.latency": _INT32,
        "tt.self_latency": _INT32,
        "tt.scheduled_max_stage": _INT32,
        "loop.cluster": _INT32,
        "loop.stage": _INT32,
        "llvm.loop_annotation": _OPAQUE,
        "ttg.partition": _UNREAD,
        "ttg.partition.outputs": _UNREAD,
        "ttg.partition.stages": _UNREAD,
        "ttg.warp_specialize.tag": _UNREAD,
    }
)


def _discardable(name: str) -> Kind | None:
    return _HINT if _HINTS.fullmatch(name) else _EVERYWHERE.get(name)


# ---- what each operation may carry


def _rules(needed: Mapping[str, Kind] | None = None, **others: Kind) -> Rules:
    needed = needed or {}
    return Rules(MappingProxyType(dict(needed)), MappingProxyType({**needed, **others}))


_NONE = _rules()
_FAST = _rules(fastmath=_OPAQUE)
_ROUNDED = _rules(fastmath=_OPAQUE, roundingmode=_integer(0, 4))
_WRAPS = _rules(overflowFlags=_OPAQUE)
_EXACT = _rules(isExact=_FLAG)
_UNSIGNED = _rules(nonNeg=_FLAG)
_CACHED = {
    "cachePolicy": _OPAQUE,
    "boundaryCheck": _integers(_any_number),
    "cache": _COUNT,
    "evict": _COUNT,
}
_ORDER = {"sem": _integer(1, 4), "scope": _integer(1, 3)}
_EXTERN = {"symbol": _TEXT}
_INLINE = {"asm_string": _TEXT, "constraints": _TEXT, "packed_element": _integer(1, 64)}
_SCALED = {
    "a_elem_type": _integer(0, 6),
    "b_elem_type": _integer(0, 6),
    "operandSegmentSizes": _segments(5, 1),
    "lhs_k_pack": _FLAG,
    "rhs_k_pack": _FLAG,
}


def _names(text: str, rules: Rules) -> dict[str, Rules]:
    return dict.fromkeys(text.split(), rules)


ATTRIBUTE_RULES: Mapping[str, Rules] = MappingProxyType(
    {
        **_names(
            "arith.andi arith.bitcast arith.ceildivsi arith.ceildivui arith.fptosi arith.fptoui arith.extsi"
            " arith.floordivsi arith.index_cast arith.maxsi arith.maxui arith.minsi arith.minui arith.remsi"
            " arith.remui arith.sitofp arith.xori math.absi math.ctlz math.ctpop math.cttz scf.condition scf.if"
            " scf.while scf.yield tt.addptr tt.bitcast tt.broadcast tt.histogram tt.int_to_ptr tt.join"
            " tt.map_elementwise.return tt.mulhiui tt.precise_sqrt tt.precise_divf tt.approx_divf tt.ptr_to_int"
            " tt.reduce.return tt.return tt.scan.return tt.splat tt.split tt.unsplat ub.unreachable"
            " tt.grid_dependency_launch_dependents tt.grid_dependency_wait ttg.local_barrier",
            _NONE,
        ),
        **_names("arith.addi arith.subi arith.muli arith.shli arith.trunci", _WRAPS),
        **_names("arith.divsi arith.divui arith.shrsi arith.shrui", _EXACT),
        **_names("arith.extui arith.uitofp arith.index_castui", _UNSIGNED),
        **_names("arith.addf arith.subf arith.mulf arith.divf arith.truncf arith.convertf", _ROUNDED),
        **_names(
            "arith.extf arith.remf arith.negf arith.maximumf arith.maxnumf arith.minimumf arith.minnumf arith.select"
            " math.absf math.acos math.acosh math.asin math.asinh math.atan math.atan2 math.atanh math.cbrt math.ceil"
            " math.copysign math.cos math.cosh math.erf math.erfc math.exp math.exp2 math.expm1 math.floor math.fma"
            " math.isfinite math.isinf math.isnan math.log math.log10 math.log1p math.log2 math.powf math.round"
            " math.roundeven math.rsqrt math.sin math.sinh math.sqrt math.tan math.tanh math.trunc",
            _FAST,
        ),
        "arith.cmpf": _rules({"predicate": _integer(0, 15)}, fastmath=_OPAQUE),
        "arith.cmpi": _rules({"predicate": _integer(0, 9)}),
        "arith.constant": _rules({"value": _CONSTANT}),
        "arith.ori": _rules(isDisjoint=_FLAG),
        "cf.br": _NONE,
        "cf.cond_br": _rules({"operandSegmentSizes": _segments(3)}, branch_weights=_integers(_any_number)),
        "gpu.barrier": _rules(address_spaces=_UNREAD),
        "llvm.intr.assume": _rules(
            op_bundle_sizes=_integers(_any_number),
            op_bundle_tags=Kind("an array", lambda _operation, value: isinstance(value, tuple)),
        ),
        "scf.for": _rules(unsignedCmp=_FLAG),
        "tt.assert": _rules({"message": _TEXT}),
        "tt.atomic_cas": _rules(_ORDER),
        "tt.atomic_load": _rules(_ORDER),
        "tt.atomic_poll": _rules(_ORDER),
        "tt.atomic_rmw": _rules({**_ORDER, "atomic_rmw_op": _integer(1, 10)}),
        "tt.atomic_store": _rules(_ORDER),
        "tt.call": _rules({"callee": _SYMBOL}, arg_attrs=_FACTS, res_attrs=_FACTS),
        "tt.cat": _rules(allow_reorder=_FLAG),
        "tt.clampf": _rules({"propagateNan": _integer(0, 0xFFFF)}),
        "tt.dot": _rules(inputPrecision=_integer(0, 4), maxNumImpreciseAcc=_INT32),
        "tt.dot_scaled": _rules(_SCALED, fastMath=_FLAG),
        "tt.elementwise_inline_asm": _rules(_INLINE, pure=_FLAG),
        "tt.expand_dims": _rules({"axis": _COUNT}),
        "tt.extern_elementwise": _rules(_EXTERN, libname=_TEXT, libpath=_TEXT, pure=_FLAG),
        "tt.fp_to_fp": _rules(rounding=_integer(0, 1)),
        "tt.func": _rules(
            {"sym_name": _TEXT},
            function_type=_TEXT,
            sym_visibility=_VISIBILITY,
            arg_attrs=_FACTS,
            res_attrs=_FACTS,
            noinline=_FLAG,
        ),
        "tt.gather": _rules({"axis": _AXIS}, efficient_layout=_FLAG),
        "tt.get_num_programs": _rules({"axis": _integer(0, 2)}),
        "tt.get_program_id": _rules({"axis": _integer(0, 2)}),
        "tt.load": _rules(None, operandSegmentSizes=_segments(3, 1), isVolatile=_FLAG, padding=_COUNT, **_CACHED),
        "tt.make_range": _rules({"start": _INT32, "end": _INT32}),
        "tt.map_elementwise": _rules({"pack": _integer(1, 1 << 16)}),
        "tt.print": _rules(
            {"prefix": _TEXT, "hex": _FLAG, "isSigned": _integers(lambda operation: len(operation.operands))}
        ),
        "tt.reduce": _rules({"axis": _AXIS}),
        "tt.reshape": _rules(allow_reorder=_FLAG, efficient_layout=_FLAG),
        "tt.scan": _rules({"axis": _AXIS, "reverse": _FLAG}),
        "tt.store": _rules(None, ignore_cta=_FLAG, **_CACHED),
        "tt.trans": _rules(
            {"order": _integers(lambda operation: len(operation.operands[0].type.shape) if operation.operands else 0)}
        ),
        "ttg.barrier": _rules(addrSpace=_SPACE_OR_HINT),
        "ub.poison": _rules(value=_OPAQUE),
    }
)
