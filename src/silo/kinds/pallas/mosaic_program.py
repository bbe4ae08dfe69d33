"""The function of jax that a kernel of Mosaic GPU is: the author's body under ``plgpu.kernel``, exported without a GPU.

Such a body has whole arrays in the GPU's memory, copies what it needs to shared memory, and waits on barriers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.target import Target
from silo.core.values import Value
from silo.errors import CompileError
from silo.kinds.pallas.front.argument_spec import ArgumentRole, MemorySpace, ScratchKind
from silo.kinds.pallas.front.pallas_installation import jax_module
from silo.kinds.pallas.front.pallas_source import PallasSource
from silo.kinds.pallas.pallas_blocks import BlockedArray, BlockedLaunch, PassedScalar, ScratchBuffer
from silo.kinds.pallas.pallas_program import (
    PallasProgram,
    constant_of,
    cut_value,
    jax_dtype,
    padded_value,
    plain_name,
    scalar_of,
)

__all__ = ["MOSAIC_CALL", "compiles_with_mosaic", "make_mosaic_program"]

MOSAIC_CALL = "mosaic_gpu_v2"
"""What the exported program has Mosaic's IR in: jax gives no promise for how long it can be read."""

_ARCH = "sm_90"  # jax exports without a GPU for this one alone
_AXES = ("x", "y", "z")
_GROUP = 4  # warps of a thread of Mosaic


def compiles_with_mosaic(launch: BlockedLaunch, target: Target, num_warps: int) -> Decision:
    """Whether a launch can be a kernel of Mosaic GPU for a target.

    >>> from silo.kinds.pallas.front.argument_spec import Scheme
    >>> launch = BlockedLaunch("k", Scheme.MOSAIC_GPU, (1,), ())
    >>> compiles_with_mosaic(launch, Target.parse("cuda:sm_80"), 4).reason
    'jax exports Mosaic GPU for sm_90 alone'
    """
    if target.arch.rstrip("a") != _ARCH:
        return Rejected(f"jax exports Mosaic GPU for {_ARCH} alone")
    if num_warps < _GROUP or num_warps % _GROUP:
        return Rejected(f"num_warps is {num_warps}, and a thread of Mosaic is a group of {_GROUP} warps")
    for one in launch.arrays:
        if one.prefetch or one.space is not MemorySpace.HBM:
            return Rejected(f"{one.name} has blocks or is prefetched: a body of Mosaic GPU copies for itself")
        if one.role is ArgumentRole.INOUT:
            return Rejected(f"{one.name} is read and written: read one array and write another")
    for one in launch.scratch:
        if one.kind not in (ScratchKind.SMEM, ScratchKind.BARRIER):
            return Rejected(f"it has scratch of the kind {one.kind.value}; there are smem and barrier")
    return Accepted("its body copies for itself")


def make_mosaic_program(
    source: PallasSource, launch: BlockedLaunch, constants: Mapping[str, Value], target: Target, *, num_warps: int
) -> PallasProgram:
    """The function of one launch. Raises CompileError where it cannot be compiled so; ToolchainError: no usable jax."""
    decision = compiles_with_mosaic(launch, target, num_warps)
    if isinstance(decision, Rejected):
        raise CompileError(f"{launch.kernel} for {target}: {decision.reason}")
    jax, mosaic = jax_module(), jax_module("jax.experimental.pallas.mosaic_gpu")
    operands, outputs = launch.operands, launch.outputs
    values = {name: constant_of(value) for name, value in constants.items()}

    def struct(one: BlockedArray, shape: tuple[int, ...]) -> Any:  # noqa: ANN401
        return jax.ShapeDtypeStruct(shape, jax_dtype(one.dtype))

    def body(*references: Any) -> None:  # noqa: ANN401
        rest = iter(references)
        found: dict[str, Any] = dict(values)
        for one in operands:
            reference = next(rest)
            found[one.name] = scalar_of(one, reference) if isinstance(one, PassedScalar) else reference
        for one in outputs:
            found[one.name] = next(rest)
        keywords = {name: values[name] for name in source.keywords}
        source.body(*(found[name] for name in source.passed), *rest, **keywords)

    threads = num_warps // _GROUP
    call = mosaic.kernel(
        _without_path(body, plain_name(launch.kernel)),
        out_type=tuple(struct(one, one.padded) for one in outputs),
        scratch_types=tuple(_scratch(one, mosaic) for one in launch.scratch),
        grid=launch.grid,
        grid_names=_AXES[: len(launch.grid)],
        **({"num_threads": threads, "thread_name": "thread"} if threads > 1 else {}),
    )

    def function(*given: Any) -> Any:  # noqa: ANN401
        made = call(*(padded_value(jax.numpy, one, value) for one, value in zip(operands, given, strict=True)))
        return tuple(cut_value(one, value) for one, value in zip(outputs, made, strict=True))

    function.__name__ = function.__qualname__ = plain_name(launch.kernel)
    structs = tuple(
        jax.ShapeDtypeStruct((1,), jax_dtype(one.operand)) if isinstance(one, PassedScalar) else struct(one, one.shape)
        for one in operands
    )
    return PallasProgram(function, structs, tuple(struct(one, one.shape) for one in outputs), MOSAIC_CALL)


def _scratch(one: ScratchBuffer, mosaic: Any) -> Any:  # noqa: ANN401
    if one.kind is ScratchKind.BARRIER:
        return mosaic.Barrier(num_barriers=math.prod(one.shape))
    assert one.dtype is not None  # memory has a dtype
    return mosaic.SMEM(one.shape, jax_dtype(one.dtype))


def _without_path(function: Any, name: str) -> Callable[..., None]:  # noqa: ANN401
    """The function as of a file of no folder: jax puts the file of what it traces into the program of a kernel."""
    function.__code__ = function.__code__.replace(co_filename="silo")
    function.__name__ = function.__qualname__ = name
    return function
