"""Calls of functions that do more than arithmetic: loops, branches, early returns, products, several results, calls of
further functions. Inlined or, where only scalars and pointers are passed, not. Over integers, which wrap, and floats
that stay exact."""
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from .dots import SUMS
from .kinds import KINDS
from .maker import HOME, Maker
from .memory import Place, _checked, _pointer
from .program import Exact

__all__ = ["call", "call_product", "call_with_memory"]

# Functions of one tile (or scalar) and a number; how many results each has, and whether its argument must be a tile.
_FUNCTIONS = {
    "turned": ("a, n", "b = a + 1\nfor i in range(n):\n    a, b = b - a, a + i\nreturn a - b", 1, False),
    "both": ("a, n", "b = a * 3\nfor i in range(n):\n    b += a\n    a = a ^ b\nreturn a, b", 2, False),
    "cut": ("a, n", "if n > 2:\n    return a + n\nb = a * 2\nif n > 1:\n    return b\nreturn a - b", 1, False),
    "halved": ("a, n", "while n > 0:\n    a = a + n\n    n = n // 2\nreturn a", 1, False),
    "off_top": (
        "a, n",
        "t = tl.max(a, 0)\nfor i in range(n):\n    a = a - t\n    t = tl.max(a, 0)\nreturn a, t",
        2,
        True,
    ),
    "summed": ("a, n", "s = tl.cumsum(a, 0)\nif n > 1:\n    s = s + a\nreturn s.to(a.dtype)", 1, True),
    "sorted": ("a, n", "for i in range(n):\n    a = tl.sort(a) + i\nreturn a", 1, True),
    "folded": (
        "a, n",
        "b = tl.reshape(a, (2, a.numel // 2))\nc = tl.max(b, 0)\nfor i in range(n):\n    c += tl.min(b, 0)\nreturn c",
        1,
        True,
    ),
}


def _text(name: str, words: str, body: str, *, apart: bool) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"@triton.jit{'(noinline=True)' if apart else ''}\ndef {name}({words}):\n{lines}"


def _function(m: Maker, name: str, words: str, body: str, *, apart: bool) -> str:
    called = f"{name}_apart" if apart else name
    text = _text(called, words, body, apart=apart)
    if text not in m.helpers:
        m.helpers.append(text)
    return called


def call(m: Maker) -> None:
    """One of the functions over integers, sometimes through another that calls it twice."""
    name = m.rng.choice(list(_FUNCTIONS))
    words, body, results, tile = _FUNCTIONS[name]
    kinds = [kind for kind in m.kinds if not KINDS[kind].floating and KINDS[kind].bits >= 32] or ["i32"]
    kind = m.rng.choice(kinds)
    shape = m.shape(1) if tile else m.rng.choice([(), m.shape()])
    if tile and (len(shape) != 1 or shape[0] < 4):
        return
    apart = not shape and m.chance(0.7)
    m.feature("call", *(["noinline"] if apart else []))
    var = m.value(kind, shape)
    called = _function(m, name, words, body, apart=apart)
    if results == 1 and name != "folded" and m.chance(0.3):
        called = _function(
            m, f"twice_{called}", words, f"return {called}({called}(a, n), n + 1)", apart=apart and m.chance(0.5)
        )
    count = m.pick(lambda other: other.shape == () and other.interval is not None and other.interval[0] >= 0)
    number = f"{count.name} % 4" if count is not None and m.chance(0.4) else m.scalar(m.rng.choice([0, 1, 2, 3]))
    if apart or name == "halved":  # a constant would be part of the function, and cannot change in it
        number += " + 0 * pid"
    text = f"{called}({var.name}, {number})"
    if results == 1:
        found = (shape[0] // 2,) if name == "folded" else shape
        m.define(f"{text}.to({m.tl(kind)})", kind, found)
        return
    pair = m.name("pair")
    m.put(f"{pair} = {text}")
    m.define(f"{pair}[0].to({m.tl(kind)})", kind, shape)
    m.define(f"{pair}[1].to({m.tl(kind)})", kind, () if name == "off_top" else shape)


def call_product(m: Maker) -> None:
    """A function with a product in a loop, and with what a product is summed to."""
    kind = m.rng.choice(["f32", "f16", "bf16", "i8"])
    sums = SUMS[kind]
    extents = sorted({extent for extent in m.extents if extent <= 32} | {16})
    rows, depth, columns = (m.rng.choice(extents) for _ in range(3))
    if max(rows * depth, depth * columns, rows * columns) > m.most or m.rounded:
        return
    left, right = m.value(kind, (rows, depth)), m.value(kind, (depth, columns))
    total = m.value(sums, (rows, columns))
    exact = None
    if KINDS[kind].floating:
        left, right, total = m.squash(left, HOME[kind]), m.squash(right, HOME[kind]), m.squash(total)
        assert left.exact is not None
        assert right.exact is not None
        assert total.exact is not None
        bound = 3 * left.exact.bound * right.exact.bound * depth + total.exact.bound
        exact = Exact(bound, min(left.exact.lsb + right.exact.lsb, total.exact.lsb))
        if not exact.fits(sums) or not Exact(exact.bound * columns, exact.lsb).fits(sums):
            return
    m.feature("call", "dot")
    options = ", out_dtype=tl.int32" if kind == "i8" else ""
    body = f"for i in range(n):\n    c = tl.dot(a, b, c{options})\nreturn c, tl.sum(c, 1)"
    called = _function(m, f"multiplied_{kind}", "a, b, c, n", body, apart=False)
    number = f"{m.rng.choice([1, 2, 3])} + 0 * pid"
    pair = m.name("pair")
    m.put(f"{pair} = {called}({left.name}, {right.name}, {total.name}, {number})")
    m.define(f"{pair}[0]", sums, (rows, columns), exact)
    row = None if exact is None else Exact(exact.bound * columns, exact.lsb)
    m.define(f"{pair}[1].to({m.tl(sums)})", sums, (rows,), row)


# Functions that reach memory themselves: of a pointer to what the program may write, one to what it may read, a number.
_WITH_MEMORY = {
    "stirred": (
        "i = tl.arange(0, 32)\na = tl.load(p + i)\nt = tl.max(a, 0)\nfor k in range(n):\n"
        "    a = tl.cumsum(a, 0) - t\n    t = tl.sum(a, 0)\ntl.store(p + i, tl.sort(a))\nreturn t"
    ),
    "spread": (
        "i = tl.arange(0, 8)\na = tl.load(p + i[:, None] * 4 + tl.arange(0, 4)[None, :])\nfor k in range(n):\n"
        "    a = a - tl.max(a, 1)[:, None] + tl.trans(tl.reshape(a, (4, 8)))\n"
        "tl.store(p + tl.arange(0, 32), tl.reshape(a, (32,)))\nif n > 1:\n    return n\nreturn tl.sum(tl.sum(a, 1), 0)"
    ),
    "multiplied_at": (
        "i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]\nc = tl.zeros((16, 16), tl.int32)\n"
        "for k in range(n):\n    c = tl.dot(tl.load(q + i * 48 + k * 16 + j), tl.load(q + (k * 16 + i) * 16 + j), c,"
        " out_dtype=tl.int32)\nc = c - tl.max(c, 1)[:, None]\ntl.store(p + j, tl.sum(c, 0)[None, :])\n"
        "return tl.sum(tl.sum(c, 0), 0)"
    ),
}


def call_with_memory(m: Maker) -> None:
    """A function that loads, works in scratch memory of its own, and stores."""
    name = m.rng.choice(list(_WITH_MEMORY))
    apart = m.chance(0.7)
    m.feature("call", *(["noinline"] if apart else []))
    written, one = _pointer(m, written=True, kind="i32")
    read, two = _pointer(m, written=False, kind="i8")
    _checked(m, written, one, Place("", None, 0, 31))
    _checked(m, read, two, Place("", None, 0, 16 * 48 - 1))
    called = _function(m, name, "p, q, n", _WITH_MEMORY[name], apart=apart)
    number = f"{m.rng.choice([0, 1, 2, 3])} + 0 * pid"
    m.define(f"{called}({written.name}, {read.name}, {number}).to(tl.int32)", "i32", ())
