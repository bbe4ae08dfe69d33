"""A Pallas kernel as jax interprets a TPU, in several ways: what its results depend on shows between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from silo.backends.pallas.blocks import BlockedLaunch
from silo.backends.pallas.chips import INTERPRETED_CHIP
from silo.backends.pallas.export import diagnosis, held_settings, on_chip
from silo.backends.pallas.program import make_program
from silo.core.values import Value
from silo.errors import CompileError
from silo.sources.pallas.installation import jax_module
from silo.sources.pallas.source import PallasSource

__all__ = ["Mode", "forget", "interpreted"]


class Mode(Enum):
    """When copies move, what memory holds that nothing was written to, in which order programs run."""

    EAGER = "eager"  # copies move when they are started; races are looked for
    LATE = "late"  # copies move when they are waited for, and programs along parallel axes run in another order
    ZERO = "zero"  # as LATE, and what nothing was written to is zero instead of NaN


_SEED = 1


def interpreted(
    source: PallasSource, launch: BlockedLaunch, constants: Mapping[str, Value], mode: Mode
) -> Callable[..., Any]:
    """A function of the operands of a program, which gives its results; compiled for this machine's CPU.

    Raises CompileError: jax refuses the kernel.
    """
    jax, pltpu = jax_module(), jax_module("jax.experimental.pallas.tpu")
    options: dict[str, Any] = {
        "detect_races": mode is Mode.EAGER,
        "dma_execution_mode": "eager" if mode is Mode.EAGER else "on_wait",
        "uninitialized_memory": "zero" if mode is Mode.ZERO else "nan",
        "out_of_bounds_reads": "raise",
        "random_seed": None if mode is Mode.EAGER else _SEED,
    }
    program = make_program(source, launch, constants, interpret=pltpu.InterpretParams(**options), limit=None)
    with held_settings(), on_chip(INTERPRETED_CHIP):
        try:
            lowered = jax.jit(program.function).trace(*program.operands).lower(lowering_platforms=("cpu",))
        except Exception as error:  # the author's own Python runs here, and may raise anything
            raise CompileError(f"{launch.kernel}, to be checked: {diagnosis(error)}") from error
    return lowered.compile()


def forget() -> None:
    """Put jax's interpreter into its first state again, after a kernel that failed in it."""
    jax_module("jax.experimental.pallas.tpu").reset_tpu_interpret_mode_state()
