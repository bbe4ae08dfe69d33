"""Makes jax functions for launches on NVIDIA's GPUs, through jax's lowering to Triton or as Mosaic GPU bodies."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import product
from typing import Any, cast

from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.device import Target
from silo.core.values import Value
from silo.errors import CompileError
from silo.frozen import replace
from silo.kinds.pallas.front.launch_spec import ArgumentRole, Dim, MemorySpace, Scheme, ScratchKind
from silo.kinds.pallas.front.pallas_installation import jax_module
from silo.kinds.pallas.front.pallas_source import PallasSource
from silo.kinds.pallas.pallas_blocks import BlockedArray, BlockedLaunch, PassedScalar, ScratchBuffer
from silo.kinds.pallas.pallas_program import (
    PallasProgram,
    block_index,
    constant_of,
    cut_value,
    jax_dtype,
    padded_value,
    plain_name,
    scalar_of,
)

__all__ = [
    "CUSTOM_CALL",
    "MOSAIC_CALL",
    "compiles_with_mosaic",
    "lowers_to_triton",
    "make_gpu_program",
    "make_mosaic_program",
    "on_gpu",
]

# ---- Launches through jax's lowering to Triton, which supports only blocks ----

CUSTOM_CALL = "__gpu$xla.gpu.triton"
"""The custom call that holds Triton's IR in the exported program. Later versions of jax need not support it."""

# the most programs for which all blocks are compared, to find two programs that write the same block
_MOST_PROGRAMS = 1 << 20


def lowers_to_triton(launch: BlockedLaunch, index_maps: Mapping[str, Any]) -> Decision:
    """Whether jax's lowering to Triton can compile a launch.

    On a GPU, programs run concurrently and without scratch.

    >>> lowers_to_triton(BlockedLaunch("k", Scheme.PIPELINE, (1,), ()), {}).reason
    "it has scheme='pipeline'"
    """
    if launch.scheme is not Scheme.DEFAULT:
        return Rejected(f"it has scheme={launch.scheme.value!r}")
    if launch.scratch:
        return Rejected("it has scratch, which jax's lowering to Triton lacks")
    for array in launch.arrays:
        if array.prefetch:
            return Rejected(f"{array.name} is prefetched, which only TPUs do")
        if array.space is MemorySpace.HBM:
            return Rejected(f'{array.name} has space="hbm", from which only TPUs copy')
        if array.role is not ArgumentRole.IN and (shared := _shared(array, launch.grid, index_maps.get(array.name))):
            return Rejected(f"{array.name} is written, and {shared}: programs run at once on a GPU")
    return Accepted("its blocks are each of one program")


def _shared(blocked_array: BlockedArray, grid: tuple[int, ...], index: Any) -> str:  # noqa: ANN401
    """Returns why two programs may write the same block; "" if each block is written by one program."""
    count = math.prod(grid)
    if count > _MOST_PROGRAMS and (blocked_array.indexed or any(isinstance(dim, tuple) for dim in blocked_array.dims)):
        return f"whether {count} programs write blocks of their own is not known"
    if not blocked_array.indexed and not any(isinstance(dim, tuple) for dim in blocked_array.dims):
        used = {dim for dim in blocked_array.dims if dim is not None}
        idle = [axis for axis, size in enumerate(grid) if size > 1 and axis not in used]
        return f"programs along axis {idle[0]} of the grid write the same block" if idle else ""
    programs: dict[tuple[int, ...], tuple[int, ...]] = {}
    for program in product(*map(range, grid)):
        coordinates: tuple[Any, ...] = (
            index(*program) if blocked_array.indexed else block_index(blocked_array.dims, program)
        )
        block = tuple(int(number) for number in coordinates)
        if block in programs:
            return f"the programs {programs[block]} and {program} write the same block"
        programs[block] = program
    return ""


def make_gpu_program(
    source: PallasSource, launch: BlockedLaunch, constants: Mapping[str, Value], *, num_warps: int, num_stages: int
) -> PallasProgram:
    """Returns the function for one launch. Raises CompileError if jax refuses it, ToolchainError without jax."""
    jax, pl = jax_module(), jax_module("jax.experimental.pallas")
    triton = jax_module("jax.experimental.pallas.triton")
    maps = {
        array.name: _index_of(source, array.name, array.index) for array in source.arrays if array.index is not None
    }
    decision = lowers_to_triton(launch, maps)
    if isinstance(decision, Rejected):
        raise CompileError(
            f"{launch.kernel} for NVIDIA's GPUs: {decision.reason}; compile it for a TPU, or write one of Mosaic GPU "
            '(scheme="mosaic_gpu")'
        )
    jnp = jax.numpy
    # A block of Triton is never cut off at the end of an array, so arrays are padded to whole blocks.
    filled_arrays = {array.name: replace(array, padded=_filled(array)) for array in launch.arrays}

    def spec(operand: BlockedArray | PassedScalar) -> Any:  # noqa: ANN401
        if isinstance(operand, PassedScalar):
            return pl.BlockSpec((1,), _first)
        return pl.BlockSpec(operand.block, maps[operand.name] if operand.indexed else partial(_block, operand.dims))

    def struct(blocked_array: BlockedArray, shape: tuple[int, ...]) -> Any:  # noqa: ANN401
        return jax.ShapeDtypeStruct(shape, jax_dtype(blocked_array.dtype))

    operands, outputs = launch.operands, launch.outputs
    values = {name: constant_of(value) for name, value in constants.items()}

    def body(*references: Any) -> None:  # noqa: ANN401
        arguments: dict[str, Any] = dict(values)
        for operand, reference in zip(operands, references, strict=False):
            arguments[operand.name] = scalar_of(operand, reference) if isinstance(operand, PassedScalar) else reference
        for output, written in zip(outputs, references[len(operands) :], strict=True):
            arguments[output.name] = written  # for an inout array, the same memory as its input
        keywords = {name: values[name] for name in source.keywords}
        source.body(*(arguments[name] for name in source.passed), **keywords)

    body.__name__ = body.__qualname__ = plain_name(launch.kernel)
    call = pl.pallas_call(
        body,
        grid=launch.grid,
        in_specs=[spec(operand) for operand in operands],
        out_specs=[spec(output) for output in outputs],
        out_shape=[struct(output, filled_arrays[output.name].padded) for output in outputs],
        input_output_aliases={
            operands.index(output): index for index, output in enumerate(outputs) if output.role is ArgumentRole.INOUT
        },
        compiler_params=triton.CompilerParams(num_warps=num_warps, num_stages=num_stages),
        name=plain_name(launch.kernel),
    )

    def function(*given: Any) -> Any:  # noqa: ANN401
        padded_operands = [
            padded_value(jnp, operand if isinstance(operand, PassedScalar) else filled_arrays[operand.name], value)
            for operand, value in zip(operands, given, strict=True)
        ]
        results = call(*padded_operands)
        return tuple(
            cut_value(filled_arrays[output.name], value) for output, value in zip(outputs, results, strict=True)
        )

    function.__name__ = function.__qualname__ = plain_name(launch.kernel)
    structs = tuple(
        jax.ShapeDtypeStruct((1,), jax_dtype(operand.operand))
        if isinstance(operand, PassedScalar)
        else struct(operand, operand.shape)
        for operand in operands
    )
    return PallasProgram(function, structs, tuple(struct(output, output.shape) for output in outputs), CUSTOM_CALL)


@contextmanager
def on_gpu() -> Generator[None]:
    """Returns a context in which jax traces for NVIDIA GPUs without needing one. The program is the same for all GPUs.

    Ignores jax's warning that its lowering to Triton will be removed, which the compiler logs itself. The warning would
    be an error in a process that turns warnings into errors.
    """
    sharding = jax_module("jax.sharding")
    context: Any = nullcontext()  # nothing to set: jax 0.10 does not read the device
    if "platform" in sharding.AbstractDevice.__init__.__code__.co_varnames:
        device = sharding.AbstractDevice(device_kind="NVIDIA H100 80GB HBM3", num_cores=132, platform="gpu")
        context = sharding.use_abstract_mesh(
            sharding.AbstractMesh((1,), ("_",), (sharding.AxisType.Auto,), abstract_device=device)
        )
    with warnings.catch_warnings(), context:
        warnings.filterwarnings("ignore", "The Pallas Triton backend is deprecated", DeprecationWarning)
        yield


def _index_of(source: PallasSource, name: str, index: Any) -> Any:  # noqa: ANN401
    axes = source.index_axes[name]

    def found(*programs: Any) -> tuple[Any, ...]:  # noqa: ANN401
        block = index(*programs[:axes])
        return tuple(cast("Sequence[Any]", block)) if isinstance(block, tuple | list) else (block,)

    return found


def _block(dims: Sequence[Dim], *programs: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return block_index(dims, programs)


def _first(*programs: Any) -> tuple[int]:  # noqa: ANN401
    del programs
    return (0,)


def _filled(blocked_array: BlockedArray) -> tuple[int, ...]:
    return tuple(-(-full // size) * size for full, size in zip(blocked_array.padded, blocked_array.block, strict=True))


# ---- Mosaic GPU kernels: the author's body under ``plgpu.kernel`` ----

MOSAIC_CALL = "mosaic_gpu_v2"
"""The custom call that holds Mosaic's IR in the exported program. Later versions of jax need not support it."""

_ARCH = "sm_90"  # without a GPU, jax exports only for this arch
_AXES = ("x", "y", "z")
_GROUP = 4  # the warps that Mosaic GPU calls one thread: a warpgroup


def compiles_with_mosaic(launch: BlockedLaunch, target: Target, num_warps: int) -> Decision:
    """Whether a launch can be compiled with Mosaic GPU for a target.

    >>> from silo.kinds.pallas.front.launch_spec import Scheme
    >>> launch = BlockedLaunch("k", Scheme.MOSAIC_GPU, (1,), ())
    >>> compiles_with_mosaic(launch, Target.parse("cuda:sm_80"), 4).reason
    'jax exports Mosaic GPU for sm_90 alone'
    """
    if target.arch.rstrip("a") != _ARCH:
        return Rejected(f"jax exports Mosaic GPU for {_ARCH} alone")
    if num_warps < _GROUP or num_warps % _GROUP:
        return Rejected(f"num_warps is {num_warps}, and a thread of Mosaic is a group of {_GROUP} warps")
    for array in launch.arrays:
        if array.prefetch or array.space is not MemorySpace.HBM:
            return Rejected(f"{array.name} has blocks or is prefetched: a body of Mosaic GPU copies for itself")
        if array.role is ArgumentRole.INOUT:
            return Rejected(f"{array.name} is read and written: read one array and write another")
    for scratch in launch.scratch:
        if scratch.kind not in (ScratchKind.SMEM, ScratchKind.BARRIER):
            return Rejected(f"it has scratch of the kind {scratch.kind.value}; there are smem and barrier")
    return Accepted("its body copies for itself")


def make_mosaic_program(
    source: PallasSource, launch: BlockedLaunch, constants: Mapping[str, Value], target: Target, *, num_warps: int
) -> PallasProgram:
    """Returns the function for one launch. Raises CompileError if Mosaic GPU refuses it, ToolchainError without jax."""
    decision = compiles_with_mosaic(launch, target, num_warps)
    if isinstance(decision, Rejected):
        raise CompileError(f"{launch.kernel} for {target}: {decision.reason}")
    jax, mosaic = jax_module(), jax_module("jax.experimental.pallas.mosaic_gpu")
    operands, outputs = launch.operands, launch.outputs
    values = {name: constant_of(value) for name, value in constants.items()}

    def struct(blocked_array: BlockedArray, shape: tuple[int, ...]) -> Any:  # noqa: ANN401
        return jax.ShapeDtypeStruct(shape, jax_dtype(blocked_array.dtype))

    def body(*references: Any) -> None:  # noqa: ANN401
        remaining = iter(references)
        arguments: dict[str, Any] = dict(values)
        for operand in operands:
            reference = next(remaining)
            arguments[operand.name] = scalar_of(operand, reference) if isinstance(operand, PassedScalar) else reference
        for output in outputs:
            arguments[output.name] = next(remaining)
        keywords = {name: values[name] for name in source.keywords}
        source.body(*(arguments[name] for name in source.passed), *remaining, **keywords)

    threads = num_warps // _GROUP
    call = mosaic.kernel(
        _without_path(body, plain_name(launch.kernel)),
        out_type=tuple(struct(output, output.padded) for output in outputs),
        scratch_types=tuple(_scratch(scratch, mosaic) for scratch in launch.scratch),
        grid=launch.grid,
        grid_names=_AXES[: len(launch.grid)],
        **({"num_threads": threads, "thread_name": "thread"} if threads > 1 else {}),
    )

    def function(*given: Any) -> Any:  # noqa: ANN401
        results = call(
            *(padded_value(jax.numpy, operand, value) for operand, value in zip(operands, given, strict=True))
        )
        return tuple(cut_value(output, value) for output, value in zip(outputs, results, strict=True))

    function.__name__ = function.__qualname__ = plain_name(launch.kernel)
    structs = tuple(
        jax.ShapeDtypeStruct((1,), jax_dtype(operand.operand))
        if isinstance(operand, PassedScalar)
        else struct(operand, operand.shape)
        for operand in operands
    )
    return PallasProgram(function, structs, tuple(struct(output, output.shape) for output in outputs), MOSAIC_CALL)


def _scratch(scratch_buffer: ScratchBuffer, mosaic: Any) -> Any:  # noqa: ANN401
    if scratch_buffer.kind is ScratchKind.BARRIER:
        return mosaic.Barrier(num_barriers=math.prod(scratch_buffer.shape))
    assert scratch_buffer.dtype is not None  # only semaphores lack a dtype
    return mosaic.SMEM(scratch_buffer.shape, jax_dtype(scratch_buffer.dtype))


def _without_path(function: Any, name: str) -> Callable[..., None]:  # noqa: ANN401
    """Renames the function to ``name`` and removes the folders from its file name; returns the function.

    jax writes both names into the program, which must not contain paths.
    """
    function.__code__ = function.__code__.replace(co_filename="silo")
    function.__name__ = function.__qualname__ = name
    return function
