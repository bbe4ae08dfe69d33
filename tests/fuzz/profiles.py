"""What a kernel of each profile is made of, and the kernel of a seed."""

from __future__ import annotations

from collections.abc import Callable

from . import calls, control, dots, elementwise, memory, products, reductions, rounded, shapes, totals
from .maker import Maker
from .program import Kernel

__all__ = ["PROFILES", "generate"]

Writer = Callable[[Maker], None]

_BASE: dict[Writer, int] = {
    elementwise.int_binary: 8,
    elementwise.float_binary: 9,
    elementwise.unary: 4,
    elementwise.compare: 3,
    elementwise.branchless: 4,
    elementwise.cast: 3,
    elementwise.wide: 4,
    memory.load: 9,
    memory.store: 2,
    memory.shifted_copy: 2,
    memory.update: 2,
}

_HALF = {writer: (weight + 2) // 4 for writer, weight in _BASE.items()}  # where other statements are many
_REDUCE: dict[Writer, int] = {reductions.reduce: 9}
_SHAPE: dict[Writer, int] = {
    shapes.transpose: 6,
    shapes.reshape: 6,
    shapes.expand: 3,
    shapes.join: 4,
    shapes.split: 4,
    shapes.cat: 2,
    shapes.gather: 4,
    shapes.flip: 2,
    shapes.sort: 2,
    shapes.histogram: 2,
    memory.turned_copy: 5,
}
_MEMORY: dict[Writer, int] = {
    memory.load: 20,
    memory.store: 14,
    memory.shifted_copy: 14,
    memory.spread_copy: 6,
    memory.turned_copy: 8,
    memory.update: 8,
    memory.scalar_load: 3,
    memory.scalar_store: 3,
}
_BLOCKS = (control.for_loop, control.while_loop, control.branch, control.pointer_loop)


def _nested(writer: Callable[[Maker, Callable[[Maker], None]], None], table: dict[Writer, int]) -> Writer:
    def body(m: Maker) -> None:
        for _ in range(m.rng.randint(1, 4)):
            _statement(m, table)

    def write(m: Maker) -> None:
        if m.depth < 2:
            writer(m, body)

    return write


def _with_blocks(table: dict[Writer, int], weights: tuple[int, int, int, int]) -> dict[Writer, int]:
    whole = dict(table)
    for writer, weight in zip(_BLOCKS, weights, strict=True):
        whole[_nested(writer, whole)] = weight
    return whole


def _statement(m: Maker, table: dict[Writer, int]) -> None:
    (writer,) = m.rng.choices(list(table), weights=list(table.values()))
    writer(m)


_ROUNDED: dict[Writer, int] = {
    rounded.arithmetic: 10,
    rounded.function: 6,
    rounded.mean: 6,
    rounded.softmax: 3,
    rounded.normalize: 3,
    rounded.dot: 4,
    elementwise.branchless: 2,
    elementwise.int_binary: 2,
    elementwise.wide: 3,
    memory.load: 6,
    memory.store: 3,
    shapes.transpose: 2,
}
_SCAN: dict[Writer, int] = {reductions.scan: 8, reductions.custom_scan: 6}
_GENERAL: dict[Writer, int] = {reductions.arg_reduce: 8, reductions.custom_reduce: 8}


def _products(table: dict[Writer, int], weights: tuple[int, int, int, int]) -> dict[Writer, int]:
    """``table`` with loops of products, in which its statements may stand, and with what is made of sums."""
    inner = dict(table)

    def body(m: Maker) -> None:
        for _ in range(m.rng.randint(1, 2)):
            _statement(m, inner)

    def product(m: Maker) -> None:
        if m.depth < 2:
            products.product_loop(m, body)

    def nested(m: Maker) -> None:
        products.nested_products(m, body)

    def use(m: Maker) -> None:
        found = m.pick(lambda var: len(var.shape) == 2 and var.kind != "i1")
        if found is not None:
            products.used(m, found)

    return _with_blocks({**table, product: 14, products.edge_product: 6, nested: 5, use: 8}, weights)


# Statements of each profile with their weights, and how floats are: "exact" in any order, "wild" (anything, but nothing
# depends on an order), "rounded", or "" for either of the first two.
PROFILES: dict[str, tuple[dict[Writer, int], str]] = {
    "elementwise": ({**_BASE, elementwise.bitcast: 3, reductions.float_order: 1}, "wild"),
    "reduce": ({**_BASE, **_REDUCE, reductions.float_order: 3}, ""),
    "general": ({**_BASE, **_REDUCE, reductions.arg_reduce: 8, reductions.custom_reduce: 8}, ""),
    "scan": ({**_BASE, **_REDUCE, reductions.scan: 8, reductions.custom_scan: 6}, ""),
    "loop": (_with_blocks({**_BASE, **_REDUCE}, (9, 5, 5, 5)), ""),
    "memory": (_with_blocks({**_BASE, **_MEMORY}, (5, 2, 2, 4)), ""),
    "dot": (_with_blocks({**_BASE, **_REDUCE, dots.dot: 12, shapes.transpose: 3}, (5, 1, 2, 3)), "exact"),
    "control": (_with_blocks({**_BASE, **_REDUCE, control.early_return: 5}, (4, 5, 12, 2)), ""),
    "shape": (_with_blocks({**_BASE, **_REDUCE, **_SHAPE}, (1, 1, 1, 1)), ""),
    "atomic": (_with_blocks({**_BASE, memory.atomic: 12, memory.scattered_add: 8}, (2, 1, 1, 1)), ""),
    "rounded": (_with_blocks(_ROUNDED, (3, 1, 2, 2)), "rounded"),
    "product": (_products({**_HALF, **_REDUCE, **_SCAN, **_SHAPE, dots.dot: 6}, (3, 2, 2, 2)), "exact"),
    "mixed": (
        _products(
            {
                **_HALF,
                **_REDUCE,
                **_GENERAL,
                memory.atomic: 6,
                memory.scattered_add: 2,
                control.early_return: 5,
                dots.dot: 3,
            },
            (2, 2, 4, 2),
        ),
        "exact",
    ),
    "function": (
        _products(
            {
                **_HALF,
                **_REDUCE,
                calls.call: 12,
                calls.call_with_memory: 8,
                calls.call_product: 6,
                control.early_return: 2,
            },
            (3, 2, 3, 1),
        ),
        "exact",
    ),
    "attention": (_products({**_ROUNDED, products.attention: 8}, (2, 1, 1, 1)), "rounded"),
    "call": (_with_blocks({**_BASE, elementwise.helper: 9}, (2, 1, 1, 1)), ""),
    "turned": (
        {elementwise.int_binary: 4, elementwise.float_binary: 3, memory.load: 4, memory.turned_copy: 9},
        "",
    ),
    "columns": ({**_HALF, reductions.reduce: 12, reductions.float_order: 3}, ""),
    # Nothing but a product at the edges of matrices, whose programs launches may cut into parts.
    "linear": ({products.edge_product: 1}, "exact"),
    "few rows": ({products.few_rows: 1}, "exact"),
    # Rows and columns of matrices reduced tile by tile.
    "totals": ({totals.tile_totals: 1}, "exact"),
}
# Profiles whose kernels begin with a product and run several programs.
_LARGE = frozenset({"product", "mixed", "function", "attention"})
# Of one statement, which decides what is written.
_ALONE = frozenset({"linear", "few rows", "totals"})
# Over tiles of whole vectors, in several programs, without a product.
_WIDE = _LARGE | {"turned", "columns", "linear", "few rows", "totals"}


def generate(seed: int, profile: str) -> Kernel:
    """The kernel of a seed: the same on every machine and Python."""
    table, arithmetic = PROFILES[profile]
    # Profiles take turns from seed to seed, so that a seed being odd or even says the profile.
    m = Maker(seed, profile, arithmetic or ("exact", "wild")[seed // len(PROFILES) % 2], large=profile in _WIDE)
    if profile in _ALONE:
        (write,) = table
        while not any(storage.written for storage in m.storages.values()):
            write(m)
        return m.finish()
    for _ in range(m.rng.randint(1, 3)):
        memory.load(m)
    if profile in _LARGE:
        products.product_loop(m)
    for _ in range(m.rng.randint(3, 14)):
        _statement(m, table)
    memory.finish_stores(m, m.rng.randint(2, 4))
    return m.finish()
