"""The order of a module's functions by their calls."""

from __future__ import annotations

from silo.kinds.triton.front.ssa import Module

__all__ = ["callees_first"]


def callees_first(module: Module) -> list[str]:
    """The symbols of the functions that the kernel reaches, each after those that it calls; the kernel is the last.

    Of functions that call each other in a circle, which the verifier refuses, one comes before its callee.
    """
    order: dict[str, None] = {}
    begun: set[str] = set()
    pending = [module.kernel]
    while pending:
        symbol = pending[-1]
        if symbol in begun:
            pending.pop()
            order.setdefault(symbol)
            continue
        begun.add(symbol)
        pending.extend(callee for callee in reversed(module.callees(symbol)) if callee not in begun)
    return list(order)
