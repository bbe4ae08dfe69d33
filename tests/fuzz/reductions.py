"""Statements that combine elements along an axis: reductions and scans."""

from __future__ import annotations

from .kinds import KINDS
from .maker import Maker
from .program import Exact, Var

__all__ = ["arg_reduce", "custom_reduce", "custom_scan", "float_order", "reduce", "scan"]

# Combining functions of a pair each. Commutative and associative in wrapping integers.
_SUM_AND_XOR = """\
def sum_and_xor(a, b, c, d):
    return a + c, b ^ d
"""
_MAX_AT = """\
def max_at(a, i, b, j):
    take = (a > b) | ((a == b) & (i < j))
    return tl.where(take, a, b), tl.where(take, i, j)
"""
_BOTH_ENDS = """\
def both_ends(a, b, c, d):
    return tl.minimum(a, c), tl.maximum(b, d)
"""
# Associative but not commutative: affine maps one after the other. For scans only.
_AFFINE = """\
def affine(a, b, c, d):
    return a * c, b * c + d
"""
_FARTHER = """\
def farther(a, b):
    same = tl.abs(a) == tl.abs(b)
    return tl.where(tl.abs(a) > tl.abs(b), a, tl.where(same, a & b, b))
"""
_PAIRS = {
    "sum_and_xor": (_SUM_AND_XOR, True),
    "max_at": (_MAX_AT, True),
    "both_ends": (_BOTH_ENDS, True),
    "affine": (_AFFINE, False),
}
_SINGLES = {
    "either": "def either(a, b):\n    return a | b\n",
    "farther": _FARTHER,
    "product": "def product(a, b):\n    return a * b\n",
    "both_plus": "def both_plus(a, b):\n    return a + b + 1\n",
}


def _axis(m: Maker, var: Var) -> int:
    return m.rng.randrange(len(var.shape))


def _reduced(m: Maker, var: Var, axis: int | None, *, keep: bool) -> tuple[int, ...]:
    if axis is None:
        return (1,) * len(var.shape) if keep else ()
    if keep:
        return tuple(1 if place == axis else extent for place, extent in enumerate(var.shape))
    return tuple(extent for place, extent in enumerate(var.shape) if place != axis)


def _options(m: Maker, var: Var) -> tuple[int | None, bool, str]:
    axis = None if m.chance(0.15) else _axis(m, var)
    keep = m.chance(0.2)
    return axis, keep, f"{axis}" + (", keep_dims=True" if keep else "")


def _extent(var: Var, axis: int | None) -> int:
    return var.elements if axis is None else var.shape[axis]


def reduce(m: Maker) -> None:
    """Sum, minimum, maximum, exclusive or."""
    var = m.any()
    if var.floating and not m.exact:
        float_order(m, var)
        return
    axis, keep, options = _options(m, var)
    kind = m.rng.choice(["sum", "sum", "max", "min", "xor_sum"])
    shape = _reduced(m, var, axis, keep=keep)
    if kind == "xor_sum":
        if var.floating:
            kind = "sum"
        elif axis is None:
            return
    if var.floating and kind == "sum":
        count = _extent(var, axis)
        assert var.exact is not None
        found = Exact(var.exact.bound * count, var.exact.lsb)
        if not found.fits(var.kind):
            var = m.squash(var)
            assert var.exact is not None
            found = Exact(var.exact.bound * count, var.exact.lsb)
        if not found.fits(var.kind):
            var = m.cast(var, "f32")
            assert var.exact is not None
            found = Exact(var.exact.bound * count, var.exact.lsb)
        m.define(f"tl.sum({var.name}, {options}).to({m.tl(var.kind)})", var.kind, shape, found)
        return
    m.define(f"tl.{kind}({var.name}, {options}).to({m.tl(var.kind)})", var.kind, shape, var.exact)


def float_order(m: Maker, var: Var | None = None) -> None:
    """Minimum or maximum of any floats. The sign of a zero depends on the order, so it is dropped by adding 0."""
    var = var or m.any(floating=True)
    axis, keep, options = _options(m, var)
    kind = m.rng.choice(["max", "min"])
    shape = _reduced(m, var, axis, keep=keep)
    m.define(f"(tl.{kind}({var.name}, {options}) + 0.0).to({m.tl(var.kind)})", var.kind, shape, var.exact)


def arg_reduce(m: Maker) -> None:
    """Where the largest or smallest element is, or both its value and place. NaNs go first: their place is open."""
    var = m.any()
    m.feature("general reduce")
    axis = _axis(m, var)
    if var.floating and not m.exact:
        var = m.define(f"tl.where({var.name} == {var.name}, {var.name}, 1.0).to({m.tl(var.kind)})", var.kind, var.shape)
    kind = m.rng.choice(["max", "min"])
    shape = _reduced(m, var, axis, keep=False)
    if m.chance(0.5):
        m.define(f"tl.arg{kind}({var.name}, {axis})", "i32", shape)
        return
    both = m.name("pair")
    m.put(f"{both} = tl.{kind}({var.name}, {axis}, return_indices=True)")
    plus = " + 0.0" if var.floating else ""
    m.define(f"({both}[0]{plus}).to({m.tl(var.kind)})", var.kind, shape, var.exact)
    m.define(f"{both}[1]", "i32", shape)


def _helper(m: Maker, name: str, text: str) -> str:
    text = "@triton.jit\n" + text
    if text not in m.helpers:
        m.helpers.append(text)
    return name


def custom_reduce(m: Maker) -> None:
    """``tl.reduce`` with a combining function of the kernel's own, over one value or two."""
    var = m.any(floating=False)
    axis = _axis(m, var)
    m.feature("general reduce")
    shape = _reduced(m, var, axis, keep=False)
    if m.chance(0.4):
        name = m.rng.choice(list(_SINGLES))
        if name == "farther" and not KINDS[var.kind].signed:
            name = "product"
        m.define(f"tl.reduce({var.name}, {axis}, {_helper(m, name, _SINGLES[name])})", var.kind, shape)
        return
    name = m.rng.choice([name for name, (_, commutes) in _PAIRS.items() if commutes])
    _pair(m, var, shape, f"tl.reduce(({{0}}, {{1}}), {axis}, {_helper(m, name, _PAIRS[name][0])})")


def _pair(m: Maker, var: Var, shape: tuple[int, ...], text: str) -> None:
    other = m.value(m.kind(floating=False) if "affine" not in text else var.kind, var.shape)
    both = m.name("pair")
    m.put(f"{both} = {text.format(var.name, other.name)}")
    m.define(f"{both}[0]", var.kind, shape)
    m.define(f"{both}[1]", other.kind, shape)


def scan(m: Maker) -> None:
    """Running sums and products."""
    var = m.any(floating=None if m.exact else False)
    axis = _axis(m, var)
    m.feature("scan")
    reverse = ", reverse=True" if m.chance(0.3) else ""
    if var.floating:
        assert var.exact is not None
        found = Exact(var.exact.bound * var.shape[axis], var.exact.lsb)
        if not found.fits(var.kind):
            var = m.squash(var)
            assert var.exact is not None
            found = Exact(var.exact.bound * var.shape[axis], var.exact.lsb)
        if not found.fits(var.kind):
            var = m.cast(var, "f32")
        m.define(f"tl.cumsum({var.name}, {axis}{reverse}).to({m.tl(var.kind)})", var.kind, var.shape, found)
        return
    kind = m.rng.choice(["cumsum", "cumsum", "cumprod"])
    m.define(f"tl.{kind}({var.name}, {axis}{reverse}).to({m.tl(var.kind)})", var.kind, var.shape)


def custom_scan(m: Maker) -> None:
    """``tl.associative_scan`` with a combining function of the kernel's own."""
    var = m.any(floating=False)
    axis = _axis(m, var)
    m.feature("scan")
    reverse = ", reverse=True" if m.chance(0.3) else ""
    if m.chance(0.4):
        name = m.rng.choice(["either", "product", "both_plus"])
        combine = _helper(m, name, _SINGLES[name])
        m.define(f"tl.associative_scan({var.name}, {axis}, {combine}{reverse})", var.kind, var.shape)
        return
    name = m.rng.choice(list(_PAIRS))
    combine = _helper(m, name, _PAIRS[name][0])
    _pair(m, var, var.shape, f"tl.associative_scan(({{0}}, {{1}}), {axis}, {combine}{reverse})")
