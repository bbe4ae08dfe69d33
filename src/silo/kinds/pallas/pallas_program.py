"""Turns a blocked launch and the author's body into a jax function: block specs, operands, and the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from silo.core.values import DType, FunctionValue, Value
from silo.errors import CompileError, ToolchainError
from silo.kinds.pallas.front.launch_spec import ArgumentRole, Dim, MemorySpace, Scheme, ScratchKind
from silo.kinds.pallas.front.pallas_installation import jax_module
from silo.kinds.pallas.front.pallas_source import PallasSource
from silo.kinds.pallas.pallas_blocks import BlockedArray, BlockedLaunch, PassedScalar
from silo.sources.written_values import recall

__all__ = [
    "PallasProgram",
    "block_index",
    "constant_of",
    "cut_value",
    "jax_dtype",
    "make_program",
    "padded_value",
    "plain_name",
    "scalar_of",
    "visited_anew",
]


@dataclass(frozen=True, slots=True)
class PallasProgram:
    """A jax function for a launch. It takes arrays like ``operands``, and returns a tuple of arrays like ``results``.

    ``custom_call`` names a custom call for which jax guarantees no compatibility; an export must list it.
    """

    function: Callable[..., Any]
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    custom_call: str = ""


def make_program(
    source: PallasSource, launch: BlockedLaunch, constants: Mapping[str, Value], *, interpret: object, limit: int | None
) -> PallasProgram:
    """Returns the function of one launch.

    ``interpret`` is passed to ``pallas_call``: False for a TPU, True, or the parameters of the TPU's interpreter.
    ``limit`` is the VMEM that the compiler may use, None for its own default.

    Raises:
        ToolchainError: jax is missing or of an unsupported version.
        SourceError: an error of the author.
        CompileError: the kernel cannot run on a TPU.
    """
    if launch.scheme is Scheme.MOSAIC_GPU:
        raise CompileError(
            f'{launch.kernel}: scheme="mosaic_gpu" is for NVIDIA\'s GPUs: no TPU has them, and none is interpreted'
        )
    jax, pl, pltpu = jax_module(), jax_module("jax.experimental.pallas"), jax_module("jax.experimental.pallas.tpu")
    jnp = jax.numpy

    def struct(blocked_array: BlockedArray, shape: tuple[int, ...]) -> Any:  # noqa: ANN401
        return jax.ShapeDtypeStruct(shape, jax_dtype(blocked_array.dtype))

    prefetched, inputs, outputs = launch.prefetched, launch.inputs, launch.outputs
    scalars = [pl.BlockSpec(memory_space=pltpu.SMEM) for _ in launch.scalars]
    call = pl.pallas_call(
        _body(source, launch, constants, pl, interpreted=interpret is True),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(prefetched),
            grid=launch.grid,
            in_specs=[*scalars, *(_spec(source, launch, input_, pl, pltpu) for input_ in inputs)],
            out_specs=[_spec(source, launch, output, pl, pltpu) for output in outputs],
            scratch_shapes=[_scratch(scratch.kind, scratch.shape, scratch.dtype, pltpu) for scratch in launch.scratch],
        ),
        out_shape=[struct(output, output.padded) for output in outputs],
        # jax counts the prefetched arrays and the scalars among the operands.
        input_output_aliases={
            len(prefetched) + len(scalars) + inputs.index(output): index
            for index, output in enumerate(outputs)
            if output.role is ArgumentRole.INOUT
        },
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=launch.dimension_semantics,
            **({} if limit is None else {"vmem_limit_bytes": limit}),
        ),
        interpret=interpret,
        name=plain_name(launch.kernel),
    )

    def function(*given: Any) -> Any:  # noqa: ANN401
        padded_operands = [
            padded_value(jnp, operand, value) for operand, value in zip(launch.operands, given, strict=True)
        ]
        results = call(*padded_operands)
        return tuple(cut_value(output, value) for output, value in zip(outputs, results, strict=True))

    function.__name__ = function.__qualname__ = plain_name(launch.kernel)
    operands = tuple(
        jax.ShapeDtypeStruct((1,), jax_dtype(operand.operand))
        if isinstance(operand, PassedScalar)
        else struct(operand, operand.shape)
        for operand in launch.operands
    )
    return PallasProgram(function, operands, tuple(struct(output, output.shape) for output in outputs))


def jax_dtype(element: DType) -> Any:  # noqa: ANN401
    """Returns jax's object for a dtype."""
    return jax_module("jax.numpy").dtype(element.name)


def block_index(dims: Sequence[Dim], programs: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the index of a program's block along each axis. The program's indices are ints or traced values.

    >>> block_index((1, None, (0, 4, 3)), (9, 5))
    (5, 0, 2)
    """
    indices: list[Any] = []
    for dim in dims:
        if dim is None:
            indices.append(0)
        elif isinstance(dim, tuple):
            axis, stride, blocks = dim
            indices.append(programs[axis] // stride % blocks)
        else:
            indices.append(programs[dim])
    return tuple(indices)


def visited_anew(blocked_array: BlockedArray, grid: Sequence[int]) -> tuple[int, ...] | None:
    """Returns the axes along which a program must have index 0 to be the first one with its block.

    Returns None if indices alone do not show this; then a program's block is compared with the block of the program
    before it.
    """
    if blocked_array.indexed or any(isinstance(dim, tuple) for dim in blocked_array.dims):
        return None
    used = {dim for dim in blocked_array.dims if dim is not None}
    return tuple(axis for axis, size in enumerate(grid) if size > 1 and axis not in used)


def plain_name(name: str) -> str:
    """Returns an identifier made from a name: it becomes the name of an MLIR function."""
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter == "_") else "_" for letter in name)


def _spec(source: PallasSource, launch: BlockedLaunch, blocked_array: BlockedArray, pl: Any, pltpu: Any) -> Any:  # noqa: ANN401
    if blocked_array.space is MemorySpace.HBM:
        return pl.BlockSpec(memory_space=pltpu.HBM)
    space = pltpu.SMEM if blocked_array.space is MemorySpace.SMEM else pltpu.VMEM
    options = (
        {}
        if blocked_array.buffers == 2 or blocked_array.space is MemorySpace.SMEM
        else {"pipeline_mode": pl.Buffered(blocked_array.buffers)}
    )
    return pl.BlockSpec(
        blocked_array.block, partial(_index, source, launch, blocked_array), memory_space=space, **options
    )


def _index(source: PallasSource, launch: BlockedLaunch, blocked_array: BlockedArray, *given: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Evaluates an index map for the program's indices along the grid, followed by the prefetched arrays."""
    programs, prefetched = given[: len(launch.grid)], given[len(launch.grid) :]
    if not blocked_array.indexed:
        return block_index(blocked_array.dims, programs)
    function = next(spec.index for spec in source.arrays if spec.name == blocked_array.name)
    assert function is not None  # an indexed array has an index map
    indices: Any = function(*programs[: source.index_axes[blocked_array.name]], *prefetched)
    return tuple(cast("Sequence[Any]", indices)) if isinstance(indices, tuple | list) else (indices,)


def _scratch(kind: ScratchKind, shape: tuple[int, ...], element: DType | None, pltpu: Any) -> Any:  # noqa: ANN401
    match kind:
        case ScratchKind.VMEM | ScratchKind.SMEM:
            assert element is not None  # only semaphores lack a dtype
            return (pltpu.VMEM if kind is ScratchKind.VMEM else pltpu.SMEM)(shape, jax_dtype(element))
        case ScratchKind.DMA:
            return pltpu.SemaphoreType.DMA(shape)
        case ScratchKind.SEMAPHORE:
            return pltpu.SemaphoreType.REGULAR(shape)
        case ScratchKind.BARRIER:
            return pltpu.SemaphoreType.BARRIER(shape)


def _body(
    source: PallasSource,
    launch: BlockedLaunch,
    constants: Mapping[str, Value],
    pl: Any,  # noqa: ANN401
    *,
    interpreted: bool,
) -> Any:  # noqa: ANN401
    """Returns the kernel function for ``pallas_call``, which calls the author's body.

    jax passes inputs, outputs and scratch in its own order; the function reorders them to the body's parameters.
    """
    values = {name: constant_of(value) for name, value in constants.items()}

    def body(*references: Any) -> None:  # noqa: ANN401
        remaining = iter(references)
        arguments: dict[str, Any] = dict(values)
        for operand in launch.operands:
            reference = next(remaining)
            arguments[operand.name] = scalar_of(operand, reference) if isinstance(operand, PassedScalar) else reference
        for output in launch.outputs:
            written = next(remaining)
            if output.role is ArgumentRole.INOUT and output.space is not MemorySpace.HBM:
                _copy_first(source, launch, output, arguments, written, pl)
            arguments[output.name] = written
        keywords = {name: values[name] for name in source.keywords}
        with _known_programs(launch, pl) if interpreted else nullcontext():
            source.body(*(arguments[name] for name in source.passed), *remaining, **keywords)

    body.__name__ = body.__qualname__ = plain_name(launch.kernel)
    return body


def _known_programs(launch: BlockedLaunch, pl: Any) -> AbstractContextManager[None]:  # noqa: ANN401
    """Returns a context in which ``program_id`` returns the indices that were read at the top of the body.

    Jax's interpreter provides these indices only to the outermost scope: index maps of a nested ``emit_pipeline`` that
    read them would fail. Uses private names of jax; if jax lacks them, such bodies cannot be interpreted.
    """
    try:
        core = jax_module("jax._src.pallas.core")
        axes = [core.GridAxis(pl.program_id(axis), size) for axis, size in enumerate(launch.grid)]
        return cast("AbstractContextManager[None]", core.grid_env(axes))
    except (AttributeError, ToolchainError):
        return nullcontext()


def _copy_first(
    source: PallasSource,
    launch: BlockedLaunch,
    blocked_array: BlockedArray,
    references: Mapping[str, Any],
    written: Any,  # noqa: ANN401
    pl: Any,  # noqa: ANN401
) -> None:
    """Copies a block of an inout array to the written block, in the first of several successive programs with it."""
    read = references[blocked_array.name]

    def copy() -> None:
        if blocked_array.space is MemorySpace.SMEM:
            _copy_scalars(read, written)
        else:
            written[...] = read[...]

    axes = visited_anew(blocked_array, launch.grid)
    if axes is None:
        programs = [pl.program_id(axis) for axis in range(len(launch.grid))]
        prefetched = [references[other.name] for other in launch.prefetched]
        now = _index(source, launch, blocked_array, *programs, *prefetched)
        then = _index(source, launch, blocked_array, *_previous_program(programs, launch.grid), *prefetched)
        first = sum(programs[1:], programs[0]) == 0
        for was, is_now in zip(then, now, strict=True):
            first |= was != is_now
        pl.when(first)(copy)
        return
    if not axes:
        copy()
        return
    first = pl.program_id(axes[0]) == 0
    for axis in axes[1:]:
        first &= pl.program_id(axis) == 0
    pl.when(first)(copy)


def _copy_scalars(read: Any, written: Any) -> None:  # noqa: ANN401
    """Copies the elements one by one, because a TPU can move only scalars within SMEM."""
    shape = tuple(written.shape)

    def copy_one(at: Any, carry: Any) -> Any:  # noqa: ANN401
        index: list[Any] = []
        for size in reversed(shape):
            index.insert(0, at % size)
            at //= size
        written[tuple(index)] = read[tuple(index)]
        return carry

    jax_module().lax.fori_loop(0, math.prod(shape), copy_one, 0)


def _previous_program(programs: Sequence[Any], grid: Sequence[int]) -> list[Any]:
    """Returns the indices of the program that runs before this one; for the first program, its own."""
    jnp = jax_module("jax.numpy")
    indices: list[Any] = []
    borrow: Any = 1
    for index, size in zip(reversed(programs), reversed(grid), strict=True):
        less = index - borrow
        borrow = jnp.where(less < 0, 1, 0)
        indices.append(jnp.where(less < 0, size - 1, less))
    first = sum(programs[1:], programs[0]) == 0
    return [jnp.where(first, is_now, was) for is_now, was in zip(programs, reversed(indices), strict=True)]


def scalar_of(passed_scalar: PassedScalar, reference: Any) -> Any:  # noqa: ANN401
    """Returns the scalar that the body gets, from its operand."""
    value = reference[0]
    if passed_scalar.dtype == passed_scalar.operand:
        return value
    return value != 0 if passed_scalar.dtype.short == "i1" else value.astype(jax_dtype(passed_scalar.dtype))


def constant_of(value: Value) -> Any:  # noqa: ANN401
    """Returns a constant in the form in which the body gets it."""
    if isinstance(value, DType):
        return jax_dtype(value)
    if isinstance(value, FunctionValue):
        return recall(value)
    return tuple(constant_of(item) for item in value) if isinstance(value, tuple) else value


def padded_value(jnp: Any, operand: BlockedArray | PassedScalar, value: Any) -> Any:  # noqa: ANN401
    """Returns an operand with its padding, which is zero."""
    if isinstance(operand, PassedScalar) or not any(operand.pad):
        return value
    return jnp.pad(value, [(0, added) for added in operand.pad])


def cut_value(blocked_array: BlockedArray, value: Any) -> Any:  # noqa: ANN401
    """Returns a result without its padding."""
    return value[tuple(slice(size) for size in blocked_array.shape)] if any(blocked_array.pad) else value
