"""Plans over the kernels of :mod:`made_bundles`, written by hand in the form in which ``silo build`` writes plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from made_bundles import write_made
from silo.bundle.reader import open_bundle
from silo.bundle.writer import write_bundle
from silo.core.expressions import Argument, Const, Extent, Node, Op, OpKind
from silo.core.recorded_plans import (
    ArgumentKind,
    RecordedArgument,
    RecordedForm,
    RecordedLaunch,
    RecordedPlan,
    RecordedSource,
    Source,
)
from silo.core.values import dtype

ARRAY = RecordedArgument(ArgumentKind.ARRAY, dtype("float32"), 1)
INTS = RecordedArgument(ArgumentKind.ARRAY, dtype("int32"), 1)
INTEGER = RecordedArgument(ArgumentKind.INTEGER)


def held(value):
    """Return an argument of a plan that must equal ``value``."""
    return RecordedArgument(ArgumentKind.VALUE, value=value)


def launch(kernel, *, grid=None, options=(), **given):
    """Return a launch of a plan: texts name its arguments, expressions are computed, other values are constants."""
    sources = []
    for name, what in given.items():
        if isinstance(what, str):
            sources.append(RecordedSource(name, Source.GIVEN, what))
        elif isinstance(what, Argument | Extent | Op):
            sources.append(RecordedSource(name, Source.COMPUTED, what))
        else:
            sources.append(RecordedSource(name, Source.CONSTANT, what))
    return RecordedLaunch(kernel, tuple(sources), grid, tuple(options))


def add(x, y, out, n):
    return launch("add", x=x, y=y, out=out, n=n)


def twice(node: Node) -> Node:
    return Op(OpKind.MUL, (node, Const(2)))


# Writes x + y to between, and between + x to out: for `n` elements, or for all elements of x if `n` is 0.
SUMS = RecordedPlan(
    "sums",
    ("x", "y", "between", "out", "n"),
    (
        RecordedForm(
            (ARRAY, ARRAY, ARRAY, ARRAY, INTEGER),
            (add("x", "y", "between", "n"), add("between", "x", "out", "n")),
            (Op(OpKind.GT, (Argument("n"), Const(0))),),
        ),
        RecordedForm(
            (ARRAY, ARRAY, ARRAY, ARRAY, held(0)),
            (add("x", "y", "between", Extent("x", 0)), add("between", "x", "out", Extent("x", 0))),
        ),
    ),
)
# A plan whose grid and numbers are computed.
ROWS = RecordedPlan(
    "rows",
    ("out", "n", "mode"),
    (
        RecordedForm(
            (INTS, INTEGER, held("double")),
            (launch("bare", out="out", n=twice(Argument("n")), grid=(twice(Argument("n")), Const(2))),),
        ),
        RecordedForm((INTS, INTEGER, held(None)), (launch("bare", out="out", n=3, grid=(Argument("n"),)),)),
    ),
)
# A plan in which a launch fails while it runs, after one that succeeds.
FAILING = RecordedPlan(
    "failing",
    ("x", "out", "ints"),
    (
        RecordedForm(
            (ARRAY, ARRAY, INTS),
            (add("x", "x", "out", Extent("x", 0)), launch("fails", out="ints", n=3), add("x", "out", "x", 1)),
        ),
    ),
)


def write_plans(path: Path, *plans: RecordedPlan) -> Path:
    """Write the bundle of made_bundles with plans."""
    plain = write_made(path.with_name("plain.silo"))
    with open_bundle(plain) as bundle:
        contents = replace(bundle.contents(), plans=plans or (SUMS, ROWS, FAILING))
        write_bundle(path, contents, bundle.blob)
    return path
