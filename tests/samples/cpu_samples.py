"""Compiles Triton kernels for this machine's CPU, and runs them on numpy arrays."""

from __future__ import annotations

import shutil
from functools import cache

import numpy as np
import pytest

from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.variant import Variant
from silo.drivers.cpu.levels import gather_facts, highest_level, host_target
from silo.kinds.triton.cpu.cpu_compiler import CpuCompiler
from silo.kinds.triton.front.adapter import lower_to_ttir
from silo.kinds.triton.front.ssa import Module
from silo.kinds.triton.front.triton_source import TritonSource
from silo.kinds.triton.front.ttir import parse_ttir
from silo.launch.cpu_objects import load

MODES = ("reference", "optimized")
needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or highest_level(gather_facts()) is None,
    reason="needs a C compiler and a known CPU level",
)


def _facts(argument):
    if isinstance(argument, np.ndarray):
        return ArgumentFacts.array(argument.dtype.name, argument.ctypes.data)
    return ArgumentFacts(argument)


def module_of(kernel, arguments) -> Module:
    """Return the parsed TTIR of ``kernel`` for these arguments (numpy arrays, numbers, constexpr values)."""
    signature, facts = TritonSource.of(kernel).specialize({name: _facts(value) for name, value in arguments.items()})
    return parse_ttir(lower_to_ttir(kernel, signature, facts, Config(), host_target()).text)


@cache
def _compiled(kernel, signature, facts, mode, options, target):
    source = TritonSource.of(kernel)
    compiler = CpuCompiler(reference=mode == "reference")
    variant = Variant(source.name, source.fingerprint, signature, facts, Config((), options), target)
    return load(compiler.compile(compiler.lower(source, variant).job))


def compiled(kernel, mode, *, options=None, target=None, **arguments):
    """Return ``kernel`` compiled for these arguments and ``target``, with the ``options`` of a config."""
    signature, facts = TritonSource.of(kernel).specialize({name: _facts(value) for name, value in arguments.items()})
    return _compiled(kernel, signature, facts, mode, tuple((options or {}).items()), target or host_target())


def run(kernel, grid, mode, *, options=None, target=None, **arguments):
    """Run ``kernel``, compiled for ``target`` with the ``options`` of a config; it writes to the arrays in place."""
    loaded = compiled(kernel, mode, options=options, target=target, **arguments)
    loaded.run(grid, {slot.name: arguments[slot.name] for slot in loaded.launch.layout})


def both(kernel, grid, **arguments):
    """Run in both modes on copies of the arrays; return the arrays of each mode by name."""
    results = []
    for mode in MODES:
        copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
        run(kernel, grid, mode, **copies)
        results.append({name: value for name, value in copies.items() if isinstance(value, np.ndarray)})
    return results
