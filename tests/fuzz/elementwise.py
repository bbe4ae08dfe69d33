"""Statements that work element by element."""

from __future__ import annotations

from .functions import FUNCTIONS
from .kinds import KINDS, TINY
from .maker import Maker
from .program import Exact, Var

__all__ = ["bitcast", "branchless", "cast", "compare", "float_binary", "helper", "int_binary", "unary", "wide"]


def _partner(m: Maker, var: Var) -> tuple[Var, tuple[int, ...]]:
    """Another value of ``var``'s type that may be combined with it, and the shape of the result."""

    def wanted(other: Var) -> bool:
        return other.kind == var.kind and _joint(m, var.shape, other.shape) is not None

    other = m.pick(wanted) if not m.chance(0.2) else None
    if other is None:
        other = m.value(var.kind, var.shape)
    shape = _joint(m, var.shape, other.shape)
    assert shape is not None
    return other, shape


def _joint(m: Maker, one: tuple[int, ...], two: tuple[int, ...]) -> tuple[int, ...] | None:
    if not one or not two:
        return one or two
    if len(one) != len(two):
        return None
    shape: list[int] = []
    count = 1
    for a, b in zip(one, two, strict=True):
        if a != b and 1 not in {a, b}:
            return None
        shape.append(max(a, b))
        count *= max(a, b)
    return tuple(shape) if count <= m.most else None


def int_binary(m: Maker) -> None:
    """Integer arithmetic, bits and shifts; every case that MLIR leaves open is as docs/cpu.md defines it."""
    var = m.any(floating=False)
    other, shape = _partner(m, var)
    sign = m.rng.choice(["+", "-", "*", "&", "|", "^", "//", "%", "<<", ">>", "min", "max", "umulhi"])
    left, right = var.name, other.name
    if sign in {"min", "max"}:
        m.define(f"tl.{sign}imum({left}, {right})", var.kind, shape)
    elif sign == "umulhi":
        if KINDS[var.kind].bits < 32:
            return
        m.define(f"tl.umulhi({left}, {right})", var.kind, shape)
    elif sign in {"//", "%"}:
        # Division by zero is poison to MLIR, whose folds differ: 0 // x is 0 there.
        m.define(f"{left} {sign} (({right} & 7) + 1)", var.kind, shape)
    elif sign in {"<<", ">>"}:
        # More than the width is poison to MLIR, whose folds differ: x >> x is 0 there.
        m.define(f"{left} {sign} ({right} & {KINDS[var.kind].bits - 1})", var.kind, shape)
    else:
        m.define(f"{left} {sign} {right}", var.kind, shape)


def float_binary(m: Maker) -> None:
    """Float arithmetic."""
    var = m.any(floating=True)
    other, shape = _partner(m, var)
    sign = m.rng.choice(["+", "-", "*", "+", "-", "*", "/", "min", "max", "fma", "clamp", "%"])
    if m.exact:
        _exact_binary(m, var, other, shape, sign if sign not in {"/", "%"} else "half")
        return
    left, right = var.name, other.name
    if sign in {"min", "max"}:
        text = f"tl.{sign}imum({left}, {right}{m.rng.choice(['', ', propagate_nan=tl.PropagateNan.ALL'])})"
        m.define(f"{text}.to({m.tl(var.kind)})", var.kind, shape)
    elif sign == "fma":
        third = m.value(var.kind, shape)
        m.define(f"tl.fma({left}, {right}, {third.name}).to({m.tl(var.kind)})", var.kind, shape)
    elif sign == "clamp":
        m.define(f"tl.clamp({left}, {left} * 0 - 1.5, {left} * 0 + 2.0).to({m.tl(var.kind)})", var.kind, var.shape)
    elif sign == "/":
        if var.kind == "f32" and m.chance(0.3):
            m.define(f"tl.div_rn({left}, {right})", var.kind, shape)
        elif var.kind in {"f16", "bf16"}:
            m.define(f"({left} / {right}).to({m.tl(var.kind)})", var.kind, shape)
        else:
            m.define(f"{left} / {right}", var.kind, shape)
    elif sign == "%":
        if var.kind in {"f32", "f64"}:
            m.define(f"{left} % {right}", var.kind, shape)
    else:
        m.define(f"{left} {sign} {right}", var.kind, shape)


def _exact_binary(m: Maker, var: Var, other: Var, shape: tuple[int, ...], sign: str) -> None:
    if sign == "half":
        assert var.exact is not None
        found = Exact(var.exact.bound / 2, var.exact.lsb - 1)
        if not found.fits(var.kind):
            var = m.squash(var)
            assert var.exact is not None
            found = Exact(var.exact.bound / 2, var.exact.lsb - 1)
        m.define(f"{var.name} * 0.5", var.kind, var.shape, found)
        return
    if sign == "clamp":
        text = f"tl.clamp({var.name}, {var.name} * 0 - 2.0, {var.name} * 0 + 1.0).to({m.tl(var.kind)})"
        m.define(text, var.kind, var.shape, _hull(var, Exact(2.0)))
        return
    third = m.value(var.kind, shape) if sign == "fma" else None
    found = _exact_result(sign, var, other, third)
    if not found.fits(var.kind):
        var, other = m.squash(var), m.squash(other)
        third = None if third is None else m.squash(third)
        found = _exact_result(sign, var, other, third)
    left, right = var.name, other.name
    if third is not None:
        m.define(f"tl.fma({left}, {right}, {third.name}).to({m.tl(var.kind)})", var.kind, shape, found)
    elif sign in {"min", "max"}:
        m.define(f"tl.{sign}imum({left}, {right}).to({m.tl(var.kind)})", var.kind, shape, found)
    else:
        m.define(f"{left} {sign} {right}", var.kind, shape, found)


def _hull(var: Var, other: Exact) -> Exact:
    assert var.exact is not None
    return Exact(max(var.exact.bound, other.bound), min(var.exact.lsb, other.lsb))


def _exact_result(sign: str, var: Var, other: Var, third: Var | None) -> Exact:
    one, two = var.exact, other.exact
    assert one is not None
    assert two is not None
    if sign in {"+", "-"}:
        return Exact(one.bound + two.bound, min(one.lsb, two.lsb))
    if sign in {"min", "max"}:
        return _hull(var, two)
    product = Exact(one.bound * two.bound, one.lsb + two.lsb)
    if third is None:
        return product
    assert third.exact is not None
    return Exact(product.bound + third.exact.bound, min(product.lsb, third.exact.lsb))


def unary(m: Maker) -> None:
    """Negation, absolute value, rounding and, where arithmetic need not be exact, mathematical functions."""
    var = m.any()
    name = var.name
    if not var.floating:
        # Of unsigned numbers the absolute value is the very same value, which a loop may not carry under two names.
        absolute = f"tl.abs({name})" if KINDS[var.kind].signed else f"({name} + 0)"
        m.define(m.rng.choice([f"-{name}", f"~{name}", absolute]), var.kind, var.shape)
        return
    choice = m.rng.choice(["neg", "abs", "round", "function", "function", "sqrt"])
    if choice == "neg":
        m.define(f"-{name}", var.kind, var.shape, var.exact)
    elif choice == "abs":
        m.define(f"tl.abs({name})", var.kind, var.shape, var.exact)
    elif var.kind not in {"f32", "f64"}:
        wide = m.cast(var, "f32")
        m.define(f"tl.floor({wide.name}).to({m.tl(var.kind)})", var.kind, var.shape, _floored(var))
    elif choice == "round" or m.exact:
        m.define(f"tl.{m.rng.choice(['floor', 'ceil'])}({name})", var.kind, var.shape, _floored(var))
    elif choice == "sqrt":
        function = m.rng.choice(["sqrt", "sqrt_rn"] if var.kind == "f32" else ["sqrt"])
        m.define(f"tl.{function}({name})", var.kind, var.shape)
    else:
        m.define(f"tl.{m.rng.choice(list(FUNCTIONS))}({_unfolded(m, var)})", var.kind, var.shape)


def _unfolded(m: Maker, var: Var) -> str:
    """``var`` as an argument of a function that is no constant to MLIR.

    MLIR folds functions of constants with those of the C library, which differ from Silo's in the last bit, as each is
    within its own bounds. Whatever is not plainly read from memory may fold to a constant in the end; a choice between
    that and what no constant is does not.
    """
    return var.name if var.name in m.read else f"tl.where(pid >= 0, {var.name}, pid.to({m.tl(var.kind)}))"


def _floored(var: Var) -> Exact | None:
    return None if var.exact is None else Exact(float(int(var.exact.bound) + 1), max(var.exact.lsb, 0))


def compare(m: Maker) -> None:
    """A mask, or a combination of masks."""
    if m.chance(0.5):
        m.new_mask(m.shape())
        return
    shape = m.shape()
    left, right = m.mask(shape), m.mask(shape)
    m.define(
        m.rng.choice(
            [
                f"{left.name} & {right.name}",
                f"{left.name} | {right.name}",
                f"{left.name} ^ {right.name}",
                f"~{left.name}",
            ]
        ),
        "i1",
        shape,
    )


def branchless(m: Maker) -> None:
    """``tl.where``."""
    var = m.any()
    if not var.shape:
        return
    other = m.value(var.kind, var.shape)
    exact = _hull(var, other.exact) if m.exact and var.floating and other.exact else None
    if exact is not None and not exact.fits(var.kind):
        var, other = m.squash(var), m.squash(other)
        assert other.exact is not None
        exact = _hull(var, other.exact)
    m.define(f"tl.where({m.mask(var.shape).name}, {var.name}, {other.name})", var.kind, var.shape, exact)


def cast(m: Maker) -> None:
    """To another type."""
    var = m.any()
    m.cast(var, m.kind())


def bitcast(m: Maker) -> None:
    """The same bits as another type. NaNs go first: their bits are nobody's business."""
    if m.exact:
        return
    var = m.any()
    kinds = [kind for kind in KINDS if kind not in {"i1", var.kind, *TINY} and KINDS[kind].bits == KINDS[var.kind].bits]
    if not kinds:
        return
    kind = m.rng.choice(kinds)
    name = var.name
    if var.floating:
        name = m.define(f"tl.where({name} == {name}, {name}, 0.0).to({m.tl(var.kind)})", var.kind, var.shape).name
    m.define(f"{name}.to({m.tl(kind)}, bitcast=True)", kind, var.shape)


def wide(m: Maker) -> None:
    """A row spread over a tile."""
    var = m.pick(lambda var: len(var.shape) == 1 and var.kind != "i1")
    shape = m.shape(2)
    if var is None or len(shape) != 2 or var.shape[0] not in shape:
        return
    axis = m.rng.choice([place for place, extent in enumerate(shape) if extent == var.shape[0]])
    view = "[:, None]" if axis == 0 else "[None, :]"
    if m.chance(0.5):
        unit = (var.shape[0], 1) if axis == 0 else (1, var.shape[0])
        m.define(f"{var.name}{view}", var.kind, unit, var.exact)
    else:
        m.define(f"tl.broadcast_to({var.name}{view}, {shape})", var.kind, shape, var.exact)


_HELPERS = {
    "twice_less": "def twice_less(a, b):\n    return a + a - b\n",
    "larger": "def larger(a, b):\n    return tl.where(a > b, a, b)\n",
    "mixed": "def mixed(a, b):\n    c = a - b\n    return tl.where(c > 0, c, b + 1)\n",
}


def helper(m: Maker) -> None:
    """A call of a helper function, inlined or (scalars only) not."""
    var = m.any(floating=None if not m.exact else False)
    name = m.rng.choice(list(_HELPERS))
    apart = m.chance(0.4)
    if apart and var.shape:
        found = m.pick(lambda scalar: not scalar.shape and scalar.kind != "i1" and not (m.exact and scalar.floating))
        var = found or m.fresh(m.kind(floating=False), ())
    other = m.value(var.kind, var.shape)
    decorator = "@triton.jit(noinline=True)" if apart else "@triton.jit"
    text = f"{decorator}\n{_HELPERS[name]}"
    called = name
    if apart:
        m.feature("noinline")
        called = f"{name}_apart"
        text = text.replace(f"def {name}(", f"def {called}(")
    if text not in m.helpers:
        m.helpers.append(text)
    m.define(f"{called}({var.name}, {other.name}).to({m.tl(var.kind)})", var.kind, var.shape)
