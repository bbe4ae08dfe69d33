"""Variants of Pallas kernels for tests, made as for a call, but without arrays. This module does not import jax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from silo.core.argument_facts import ArgumentFacts
from silo.core.config import Config
from silo.core.device import Target
from silo.core.extents import Extents
from silo.core.values import Value, dtype
from silo.core.variant import Variant
from silo.frozen import replace
from silo.kinds.pallas.front.pallas_definition import pallas
from silo.kinds.pallas.front.pallas_source import PallasSource


def source_of(body: Any, **said: Any) -> PallasSource:
    """Return the source of a body; ``said`` are the options of ``silo.pallas``."""
    return pallas(body, **said).source


def variant_of(
    source: PallasSource,
    arguments: Mapping[str, Any],
    grid: tuple[int, ...] = (1,),
    config: Mapping[str, Value] | None = None,
    target: str = "tpu:v5e",
) -> Variant:
    """Return the variant for a call; ``arguments`` has ``(shape, dtype)`` or a shape for an array, else a value."""
    facts: dict[str, ArgumentFacts] = {}
    extents: list[tuple[str, Extents]] = []
    for name, given in arguments.items():
        if isinstance(given, tuple):
            nested = bool(given) and isinstance(given[0], tuple)
            shape, element = given if nested else (given, "fp32")
            facts[name] = ArgumentFacts(dtype=dtype(element), is_pointer=True, shape=shape)
            extents.append((name, Extents(shape)))
        else:
            facts[name] = ArgumentFacts(given)
    signature, specialization = source.specialize(facts)
    axes = (*grid, 1, 1)[:3]
    specialization = replace(specialization, extents=tuple(sorted(extents)), grid=axes)
    made = Config.of(dict(config or {}))
    return Variant(source.name, source.fingerprint, signature, specialization, made, Target.parse(target))
