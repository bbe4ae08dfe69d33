"""A launcher with the signature of Helion's launcher for Pallas kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from silo.core.values import identity_of
from silo.errors import ArgumentError, UnsupportedError
from silo.forks import Mutex
from silo.frozen import frozen
from silo.integrations.helion.launcher_call import name_of
from silo.kernels.kernel import maker
from silo.kinds.pallas.front.launch_spec import ArgSpec, Scratch

__all__ = ["default_pallas_launcher", "specs_of"]

_KEPT = 512  # the kernels to keep: a program that tunes makes thousands, and uses most of them only briefly
_BlockSpecs = Sequence[tuple[Sequence[int | None], Sequence[Any]] | None]
# The names of options that describe a compact worklist start with this. A kernel with the option _WORKLIST is refused;
# in a kernel without it, the other such options have no effect.
_OF_WORKLISTS = "_compact_"
_WIDE = ("int64", "float64", "complex128")
_WORKLIST = "_compact_build_worklist"


@frozen
class _Made:
    kernel: object  # Helion's kernel; kept alive, because the cache finds it by its id
    made: Any


_made: dict[tuple[object, ...], _Made] = {}
_lock = Mutex()


def default_pallas_launcher(
    pallas_kernel: object,
    grid: tuple[int, ...],
    *args: object,
    _output_indices: Sequence[int] | None = None,
    _inplace_indices: Sequence[int] | None = None,
    _block_spec_info: _BlockSpecs | None = None,
    _smem_arg_indices: Sequence[int] | None = None,
    _scratch_shapes: Sequence[tuple[Any, ...]] | None = None,
    _hbm_arg_indices: Sequence[int] | None = None,
    _ds_pad_dims: Sequence[tuple[int, int, int, int]] | None = None,
    _pallas_interpret: bool | None = None,
    _scratch_shape_sources: object = None,
    _matmul_dot_general: object = None,
    _use_low_level_scheduler: bool = False,
    **options: object,
) -> object:
    """Launches a Pallas kernel that Helion generated; pass this as ``_launcher=`` of its host function.

    The launcher makes a kernel of ``silo.pallas`` for the shapes, dtypes and numbers of the call. The kernel is
    interpreted if the tensors are on the CPU and compiled if they are on a TPU; Silo's store keeps the code. Numbers
    are constants, as in Helion.

    Args:
        pallas_kernel: the generated function.
        grid: programs along up to three axes.
        *args: the kernel's arguments in its order. An output that is not read is allocated here, and its argument
            ignored.
        _output_indices: arguments that are written.
        _inplace_indices: outputs that are also read; None: all outputs.
        _block_spec_info: for each tensor its block and the axes of the grid; None: the whole tensor.
        _smem_arg_indices: tensors, counted among tensors, that are read as scalars.
        _scratch_shapes: shape, dtype and kind of each scratch buffer.
        _hbm_arg_indices: arguments that the kernel copies itself.
        _ds_pad_dims: tuples (argument, axis, multiple, more) for slices that end beyond the array: the axis is padded
            to the multiple, and by ``more`` further elements.
        _pallas_interpret: ignored; the device of the tensors decides.
        _scratch_shape_sources: ignored; ``_scratch_shapes`` has the sizes.
        _matmul_dot_general: ignored; it selects another way to compute the same result.
        _use_low_level_scheduler: ignored.
        **options: any other option that is not empty is refused.

    Returns:
        As Helion's launcher: None, the output that was allocated, or a tuple of the allocated outputs in order.

    Raises:
        UnsupportedError: a compact worklist, remote copies or another option; the message names it.
        ArgumentError: the arguments do not fit the kernel, or a tensor has 64-bit elements.
    """
    del _pallas_interpret, _scratch_shape_sources, _matmul_dot_general, _use_low_level_scheduler
    name = name_of(pallas_kernel)
    _refuse_options(name, options)
    for position, argument in enumerate(args):
        if str(getattr(argument, "dtype", "")).endswith(_WIDE):
            raise ArgumentError(
                f"{name}: argument {position} is a tensor of {cast('Any', argument).dtype}, and jax has no 64-bit "
                "arrays as it is set here: cast it to a dtype of 32 bits"
            )
    outputs = list(_output_indices or ())
    inplace = outputs if _inplace_indices is None else list(_inplace_indices)
    made_here = [output for output in outputs if output not in inplace]
    specs = specs_of(
        args,
        outputs=outputs,
        inplace=inplace,
        blocks=_block_spec_info,
        scalars=_smem_arg_indices or (),
        in_hbm=_hbm_arg_indices or (),
        pads=_ds_pad_dims or (),
    )
    scratch = tuple(_scratch(scratch_shape) for scratch_shape in _scratch_shapes or ())
    programs = tuple(grid) or (1,)
    plain_values = [None if position in made_here else _plain(argument) for position, argument in enumerate(args)]
    kernel = _serving(pallas_kernel, programs, args, specs, scratch, in_hbm=bool(_hbm_arg_indices))
    results = kernel(*plain_values)
    if not made_here:
        return None
    several = cast("tuple[object, ...]", results if isinstance(results, tuple) else (results,))
    tensors = [_tensor(result) for result in several]
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def specs_of(
    args: Sequence[Any],
    *,
    outputs: Sequence[int],
    inplace: Sequence[int],
    blocks: _BlockSpecs | None,
    scalars: Sequence[int],
    in_hbm: Sequence[int],
    pads: Sequence[tuple[int, int, int, int]],
) -> tuple[ArgSpec | str, ...]:
    """Returns Silo's spec of each argument, or ``"constexpr"`` for a number.

    As in Helion, ``blocks`` and ``scalars`` count only tensors; the other sequences count all arguments.
    """
    specs: list[ArgSpec | str] = []
    tensors = 0
    for position, item in enumerate(args):
        if not hasattr(item, "shape"):
            specs.append("constexpr")
            continue
        spec = blocks[tensors] if blocks else None
        shape = tuple(int(size) for size in item.shape)
        written = position in outputs
        role = "in" if not written else "inout" if position in inplace else "out"
        own_pads = tuple((axis, multiple, more) for other, axis, multiple, more in pads if other == position)
        is_whole = spec is None or position in in_hbm
        padded = _padded(shape, own_pads)
        specs.append(
            ArgSpec(
                block=None if is_whole or spec is None else _block(spec[0], padded),
                dims=() if is_whole or spec is None else tuple(_dim(item) for item in spec[1]),
                space="hbm" if position in in_hbm else "smem" if tensors in scalars else "vmem",
                role=role,
                pad=own_pads,
                dtype=str(item.dtype).removeprefix("torch.") if role == "out" else None,
                shape=shape if role == "out" else None,
            )
        )
        tensors += 1
    return tuple(specs)


def _padded(shape: tuple[int, ...], pads: Sequence[tuple[int, int, int]]) -> tuple[int, ...]:
    sizes = list(shape)
    for axis, multiple, more in pads:
        sizes[axis] += -sizes[axis] % multiple + more
    return tuple(sizes)


def _block(block: Sequence[int | None], shape: tuple[int, ...]) -> tuple[int | None, ...]:
    """Replaces extents of a block that are at least as long as the array's axis by None; empty axes become 1."""
    return tuple(
        None if extent is None or extent >= size else max(int(extent), 1)
        for extent, size in zip(block, shape, strict=True)
    )


def _dim(size: Any) -> int | tuple[int, int, int] | None:  # noqa: ANN401
    if isinstance(size, tuple | list):
        axis, stride, count = cast("Sequence[int]", size)
        return int(axis), max(int(stride), 1), int(count)
    return None if size is None else int(size)


def _scratch(description: tuple[Any, ...]) -> Scratch:
    shape, element, *kind = description
    name = str(element).rpartition(".")[2].rstrip("_")  # "float32" of jnp.float32, "bool" of jnp.bool_
    chosen = kind[0] if kind else "vmem"
    return (
        Scratch(chosen, tuple(int(size) for size in shape)) if element is None else Scratch(chosen, tuple(shape), name)
    )


def _refuse_options(name: str, options: Mapping[str, object]) -> None:
    if options.get(_WORKLIST) is not None:
        raise UnsupportedError(f"{name}: Silo launches no compact worklists ({_WORKLIST})")
    others = [word for word, value in options.items() if value and not word.startswith(_OF_WORKLISTS)]
    if others:
        raise UnsupportedError(f"{name}: a Pallas launch by Silo takes no {', '.join(others)}")


def _serving(
    kernel: object,
    grid: tuple[int, ...],
    args: Sequence[Any],
    specs: tuple[ArgSpec | str, ...],
    scratch: tuple[Scratch, ...],
    *,
    in_hbm: bool,
) -> Any:  # noqa: ANN401  # the type that silo.pallas returns
    # 1 and True are equal as keys of a dict but make two kernels, so the key has their identities.
    constants = tuple(
        (cast("object", type(argument)), identity_of(argument))
        for argument, spec in zip(args, specs, strict=True)
        if spec == "constexpr"
    )
    key = (id(kernel), grid, repr(specs), scratch, constants)
    cached_kernel = _made.get(key)
    if cached_kernel is not None:
        return cached_kernel.made
    silo_kernel = maker("pallas")(
        kernel,
        args=specs,
        scheme="fori" if in_hbm or scratch else "default",
        scratch=scratch,
        grid=grid,
        name=name_of(kernel),
    )
    with _lock:
        _made[key] = _Made(kernel, silo_kernel)
        while len(_made) > _KEPT:
            del _made[next(iter(_made))]
    return silo_kernel


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Returns a tensor without its gradient, which is how Helion's launcher passes it."""
    return value.detach() if getattr(value, "requires_grad", False) else value


def _tensor(array: Any) -> Any:  # noqa: ANN401
    """Converts a result to a torch tensor.

    The conversion is necessary if no argument is a tensor: the kernel then returns arrays of jax.
    """
    if hasattr(array, "data_ptr"):
        return array
    import torch  # noqa: PLC0415  # Helion has imported it

    return torch.from_dlpack(array)
