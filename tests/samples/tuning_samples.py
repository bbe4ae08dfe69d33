"""Samples for tests of tuning: a program with a reduction, its case, and searches and sessions over configs."""

from dataclasses import fields

from silo.core.config import ConfigSet
from silo.tuner import session
from silo.tuner.search import searchers as registry
from silo.tuner.session_values import SearchOptions, SessionScope, SessionWatch

HEAD = """
import silo
import triton
import triton.language as tl
from silo import heuristics
"""
# SPACE stands for the arguments of ``silo.kernel`` that declare the tuning space.
ROW_SUMS = """

@silo.kernel(SPACE, grid=lambda a: (silo.cdiv(a.m, a.XBLOCK),))
@triton.jit
def row_sums(x, out, m, n, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    rows = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    total = tl.zeros((XBLOCK,), tl.float32)
    for start in range(0, n, R0_BLOCK):
        i = start + tl.arange(0, R0_BLOCK)
        mask = (rows[:, None] < m) & (i[None, :] < n)
        total += tl.sum(tl.load(x + rows[:, None] * n + i[None, :], mask=mask, other=0.0), 1)
    tl.store(out + rows, total, mask=rows < m)


@row_sums.cases(n=[500])
def _(n, make):
    x, out = make.normal((64, n)), make.empty(64)
    return silo.Case(args=(x, out, 64, n), expected={"out": lambda: x.host.sum(1)})
"""


def drain(searcher, cost, ahead=8, found=None):
    """Run a searcher to its end; return every config with its cost, in the order of suggestion.

    ``found`` has configs whose cost is already known.
    """
    found, waiting = {} if found is None else found, []
    while True:
        waiting += searcher.suggest(ahead - len(waiting))
        if not waiting:
            return found
        config = waiting.pop(0)
        assert config not in found
        found[config] = cost(config)
        searcher.observe(config, found[config])


def space_of(configs):
    """Return a list of configs as a space; a space is returned itself."""
    return ConfigSet(configs) if isinstance(configs, list | tuple) else configs


def make_searcher(name, configs, seed, seeds=()):
    """Return a searcher over a list of configs or a space."""
    return registry.make_searcher(name, space_of(configs), seed, seeds)


def tune(study, configs, evaluator, records, **terms):
    """Run a session over a list of configs or a space; ``terms`` are fields of its options, scope and watch."""
    made = [
        kind(**{field.name: terms.pop(field.name) for field in fields(kind) if field.name in terms})
        for kind in (SearchOptions, SessionScope, SessionWatch)
    ]
    assert not terms, terms
    return session.tune(study, space_of(configs), evaluator, records, *made)
