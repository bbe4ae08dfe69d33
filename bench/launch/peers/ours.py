"""Ways to launch with Silo: with the guard or without, from a bundle, with the GIL held, with addresses for arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.launch.cases import ELEMENTS, GRID, Call
from bench.launch.peers import Context, Row


def _kernel(context: Context) -> Any:
    return getattr(context.kernels, context.case.kernel)


def guarded(context: Context) -> Call:
    return context.call("k[grid]({arguments})", k=_kernel(context), grid=GRID)


def declared(context: Context) -> Call:
    return context.call("k({arguments})", k=_kernel(context))


def fresh_grid(context: Context) -> Call:
    return context.call("k[(x, 1, 1)]({arguments})", k=_kernel(context), x=GRID[0])


def held(context: Context) -> Call:
    return context.call("k[grid]({arguments})", k=context.kernels.HELD[0][context.case.kernel], grid=GRID)


def bound(context: Context) -> Call:
    launch = _kernel(context).bind(*context.arguments.values())
    return context.call("launch({arguments})", launch=launch)


def bound_held(context: Context) -> Call:
    launch = context.kernels.HELD[0][context.case.kernel].bind(*context.arguments.values())
    return context.call("launch({arguments})", launch=launch)


def bound_addresses(context: Context) -> Call:
    launch = _kernel(context).bind(*context.arguments.values())
    return context.call("launch({arguments})", values=context.addresses, launch=launch)


def buffers(context: Context) -> Call:
    import silo

    made = {name: silo.Buffer((ELEMENTS,), "float32", device="cuda") for name in context.case.pointer_names}
    return context.call("k[grid]({arguments})", values={**context.arguments, **made}, k=_kernel(context), grid=GRID)


def bundled(context: Context) -> Call:
    import silo

    if context.bundle is None:
        raise RuntimeError("no bundle was built")
    kernel = silo.load(context.bundle)[context.case.kernel]
    return context.call("k[grid]({arguments})", k=kernel, grid=GRID)


def accelerated(context: Context) -> Call:
    """Call Triton's kernel as a Triton program does, while Silo serves Triton's launches (as ``silo exec`` does)."""
    import silo

    call = context.call("k[grid]({arguments})", k=context.jit, grid=GRID)
    return replace(call, around=silo.accelerate)


ROWS = (
    Row("silo", "Silo, guarded: k[grid](...)", guarded, stub=True),
    Row("silo-declared", "Silo, guarded, declared grid: k(...)", declared, stub=True),
    Row("silo-fresh-grid", "Silo, guarded, a new grid tuple a call", fresh_grid, stub=True),
    Row("silo-held", "Silo, guarded, GIL held", held, stub=True),
    Row("silo-bound", "Silo, bound", bound, stub=True),
    Row("silo-bound-held", "Silo, bound, GIL held", bound_held, stub=True),
    Row("silo-bound-int", "Silo, bound, addresses as integers", bound_addresses, stub=True),
    Row("silo-buffer", "Silo, guarded, silo.Buffer arguments", buffers, stub=True),
    Row("silo-bundle", "Silo, from a bundle: k[grid](...)", bundled, stub=True),
    Row("silo-program", "Silo, an unchanged program: k[grid](...)", accelerated),
)
