"""Interprets a Pallas kernel's TPU in several modes: results that depend on time or order differ between them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from enum import Enum
from typing import Any, cast

from silo.core.values import Value
from silo.errors import CompileError
from silo.frozen import frozen
from silo.kinds.pallas.chips import INTERPRETED_CHIP
from silo.kinds.pallas.front.pallas_installation import jax_module
from silo.kinds.pallas.front.pallas_source import PallasSource
from silo.kinds.pallas.pallas_blocks import BlockedLaunch
from silo.kinds.pallas.pallas_job import diagnosis, held_settings, on_chip
from silo.kinds.pallas.pallas_program import make_program

__all__ = ["CheckMode", "Interpreted", "forget", "interpreted"]


class CheckMode(Enum):
    """When copies move data, the value of unwritten memory, and the order in which programs run."""

    EAGER = "eager"  # copies move data when they are started; races are detected
    LATE = "late"  # copies move data when they are waited for, and programs along parallel axes run in another order
    ZERO = "zero"  # like LATE, but memory that was never written reads as zero instead of NaN


_SEED = 1
# Prefixes of the primitives that move memory or wait.
_SCHEDULED = ("dma_", "semaphore_", "get_barrier_semaphore")


@frozen
class Interpreted:
    """``function`` takes the operands of a program and returns its results; compiled for this machine's CPU.

    ``schedules``: whether results may depend on when copies move data, or on the order of programs.
    """

    function: Callable[..., Any]
    schedules: bool


def interpreted(
    source: PallasSource, launch: BlockedLaunch, constants: Mapping[str, Value], mode: CheckMode
) -> Interpreted:
    """Returns the program as jax interprets it in ``mode``.

    Raises CompileError: jax refuses the kernel.
    """
    jax, pltpu = jax_module(), jax_module("jax.experimental.pallas.tpu")
    options: dict[str, Any] = {
        "detect_races": mode is CheckMode.EAGER,
        "dma_execution_mode": "eager" if mode is CheckMode.EAGER else "on_wait",
        "uninitialized_memory": "zero" if mode is CheckMode.ZERO else "nan",
        "out_of_bounds_reads": "raise",
        "random_seed": None if mode is CheckMode.EAGER else _SEED,
    }
    program = make_program(source, launch, constants, interpret=pltpu.InterpretParams(**options), limit=None)
    with held_settings(), on_chip(INTERPRETED_CHIP):
        try:
            traced = jax.jit(program.function).trace(*program.operands)
            lowered = traced.lower(lowering_platforms=("cpu",))
        except Exception as error:  # the author's own Python runs here, and may raise anything
            raise CompileError(f"{launch.kernel}, to be checked: {diagnosis(error)}") from error
    return Interpreted(lowered.compile(), _has_schedules(launch, traced.jaxpr))


def _has_schedules(launch: BlockedLaunch, jaxpr: Any) -> bool:  # noqa: ANN401  # jax's
    """Whether a program starts copies or uses semaphores, or has an axis whose programs may run in any order."""
    axes = zip(launch.grid, launch.dimension_semantics, strict=False)
    if any(extent > 1 and semantics != "arbitrary" for extent, semantics in axes):
        return True
    used = set(_primitives(jaxpr))
    # Without a pallas_call in the jaxpr, the body's primitives are unknown.
    return "pallas_call" not in used or any(name.startswith(_SCHEDULED) for name in used)


def _primitives(jaxpr: Any) -> Generator[str]:  # noqa: ANN401
    """Yields the names of the primitives of a jaxpr and of the jaxprs inside it."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield str(equation.primitive.name)
        for value in equation.params.values():
            held = cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,))
            for inner in held:
                if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    yield from _primitives(inner)


def forget() -> None:
    """Resets jax's interpreter to its initial state, after a kernel that failed in it."""
    jax_module("jax.experimental.pallas.tpu").reset_tpu_interpret_mode_state()
