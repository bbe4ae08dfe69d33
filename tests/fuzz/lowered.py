"""From a random kernel's source to the parsed form that the C code is made from."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
import triton.language as tl

from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.launch_info import LayoutSlot
from silo.drivers.cpu.levels import host_target
from silo.kinds.triton.cpu.cpu_jobs import job_layout
from silo.kinds.triton.front.adapter import lower_to_ttir
from silo.kinds.triton.front.ssa import Module
from silo.kinds.triton.front.triton_source import TritonSource
from silo.kinds.triton.front.ttir import parse_ttir
from silo.kinds.triton.front.verifier import verify

from .kinds import KINDS
from .program import Kernel

__all__ = ["Lowered", "arguments_of", "jit_of", "lower"]


@dataclass(frozen=True)
class Lowered:
    """The parsed module of a kernel, and the parameters that are left of it."""

    module: Module
    layout: tuple[LayoutSlot, ...]
    ttir: str


def jit_of(source: str, file: str) -> Any:
    """The ``@triton.jit`` function of a source text."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": "random_kernel"}
    exec(compile(source, file, "exec"), names)  # written by the generator
    return names["kernel"]


def lower(kernel: Kernel, addresses: dict[str, int]) -> Lowered:
    """Lower for arguments at these addresses, specialized as Triton does."""
    file = f"<{kernel.profile} {kernel.seed}>"
    function = jit_of(kernel.text(), file)
    facts: dict[str, ArgumentFacts] = {}
    for parameter in kernel.parameters:
        if parameter.pointer:
            facts[parameter.name] = ArgumentFacts.array(KINDS[parameter.kind].library, addresses[parameter.name])
        else:
            facts[parameter.name] = ArgumentFacts(int(parameter.value))
    signature, found = TritonSource.of(function).specialize(facts)
    ttir = lower_to_ttir(function, signature, found, Config(), host_target())
    del linecache.cache[file]
    module = parse_ttir(ttir.text)
    verify(module)
    return Lowered(module, job_layout(signature, found, module), ttir.text)


def arguments_of(kernel: Kernel, arrays: dict[str, np.ndarray]) -> dict[str, object]:
    """Every argument by name: pointers as the part of their storage that they point to."""
    return {
        parameter.name: arrays[parameter.storage][kernel.start(parameter) :]
        if parameter.pointer
        else int(parameter.value)
        for parameter in kernel.parameters
    }
