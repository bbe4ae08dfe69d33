"""``silo.pallas``: kernels written in Pallas."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from silo.core.config import Config
from silo.core.grids import Grid
from silo.core.search_space import DeclaredSpace, space_of
from silo.core.signature import NO_DEFAULT, Effect, Parameter, ParameterKind, Signature
from silo.core.space import Space
from silo.core.values import DTypeKind, Value
from silo.errors import SourceError, SpaceError
from silo.kinds.pallas.front.launch_spec import (
    ArgSpec,
    ArgumentRole,
    ArraySpec,
    Scheme,
    Scratch,
    SpecReader,
    choice,
    constants_read,
    read_named,
)
from silo.kinds.pallas.front.pallas_source import WIDE, PallasSource, constant_value, plain_function
from silo.sources.declaration import Declaration

__all__ = ["pallas"]

_EFFECTS = {ArgumentRole.IN: Effect.READ, ArgumentRole.OUT: Effect.WRITE, ArgumentRole.INOUT: Effect.BOTH}
_SCALARS = {DTypeKind.BOOL: ParameterKind.BOOL, DTypeKind.FLOAT: ParameterKind.FLOAT}
_SEMANTICS = ("parallel", "arbitrary")
_AXES = 3


def pallas(
    body: Callable[..., object],
    *,
    args: Sequence[ArgSpec | str | None] | Mapping[str, ArgSpec | str | None],
    scheme: Literal["default", "pipeline", "fori", "mosaic_gpu"] = "default",
    scratch: Sequence[Scratch] = (),
    dimension_semantics: Sequence[str] | None = None,
    vmem_limit_bytes: int | None = None,
    space: Mapping[str, Iterable[Value]] | Iterable[Config | Mapping[str, Value]] | DeclaredSpace | None = None,
    grid: Callable[[Any], object] | Sequence[int] | Grid | None = None,
    key: Sequence[str] = (),
    name: str | None = None,
    release_gil: bool = True,
) -> Any:  # noqa: ANN401  # a kernel, called like the body
    """Makes a Silo kernel from a Pallas body.

    Args:
        body: the code of one program. It takes its arguments by position, then one reference for each scratch buffer;
            parameters that are keyword-only are constants, which a call or a config sets.
        args: the description of each argument, in the body's order or by name: for an array a :class:`silo.ArgSpec`;
            for a scalar its dtype (``"fp32"``, ``"i32"``), or None if each call decides the dtype; for a constant
            ``"constexpr"``. The body gets a scalar as a value at run time: another value needs no compilation.
        scheme: ``default``: the body sees blocks. ``pipeline`` and ``fori``: arrays without a block stay in HBM, and
            the body runs ``pltpu.emit_pipeline`` over them, or copies parts itself. ``mosaic_gpu``: the body is written
            for ``plgpu.kernel``, only for NVIDIA's GPUs; the axes of its grid are x, y and z.
        scratch: memory and semaphores, passed as the last parameters of the body.
        dimension_semantics: ``parallel`` or ``arbitrary`` for each axis of the grid: the programs of a parallel axis
            may run in any order, on several cores. Arbitrary by default.
        vmem_limit_bytes: the VMEM that the compiler may use; by default all of the chip's VMEM.
        space: as for :func:`silo.kernel`; its values are constants of the body, or names in blocks and scratch.
        grid: as for :func:`silo.kernel`; each axis is a loop on a TPU, the last one innermost. A grid of more than
            three axes is a tuple of numbers: it cannot be computed from the arguments.
        key: as for :func:`silo.kernel`.
        name: the kernel's name; its body's name by default.
        release_gil: as for :func:`silo.kernel`.

    Raises:
        SourceError: the body is not a function with source, or the specs contradict it or each other.
        SpaceError: the space is invalid.
        TraceError: a size cannot be traced to an expression.
    """
    plain = plain_function(getattr(body, "func", body))
    code = getattr(plain, "__code__", None)
    if code is None or not callable(body):
        raise SourceError(f"{body!r} is no Pallas body: give silo.pallas a function")
    made_name = name or str(plain.__qualname__).rpartition("<locals>.")[2]
    try:
        inspect.getsource(plain)
    except (OSError, TypeError) as error:
        raise SourceError(
            f"{made_name} has no source ({code.co_filename}), and a kernel is known by its source: write it to a file "
            "and import it from there; a notebook cell will do"
        ) from error
    location = f"{code.co_filename}:{code.co_firstlineno}"
    where = f"{made_name} ({location})"
    made_scheme = choice(where, "scheme", Scheme, scheme)
    positional, constants = _parameters(where, body)
    if len(scratch) > len(positional):
        raise SourceError(f"{where}: {len(scratch)} pieces of scratch for {len(positional)} parameters")
    passed, scratch_parameters = (
        positional[: len(positional) - len(scratch)],
        positional[len(positional) - len(scratch) :],
    )
    descriptions = read_named(args, [item.name for item in passed], where, "args")
    arrays = [item for item, description in descriptions.items() if isinstance(description, ArgSpec)]
    folded = [
        *(constant.name for constant in constants),
        *(item for item, description in descriptions.items() if description == "constexpr"),
    ]
    others = [description for description in descriptions if description not in arrays and description not in folded]
    try:
        made_space = space if space is None or isinstance(space, DeclaredSpace) else Space.of(space)
        configs = () if made_space is None else space_of(made_space).configs()
    except SpaceError as error:
        raise SpaceError(f"{where}: {error}") from error
    chosen = tuple(dict.fromkeys(name for config in configs for name, _ in config.values))
    used_names = (*others, *(scratch_parameter.name for scratch_parameter in scratch_parameters))
    unknown_sizes = [
        named_size
        for named_size in _named_sizes(descriptions.values(), scratch)
        if named_size not in (*arrays, *used_names)
    ]
    reader = SpecReader(
        where, made_scheme, arrays, tuple(dict.fromkeys((*folded, *chosen, *unknown_sizes))), used_names
    )
    specs = tuple(reader.array(array, descriptions[array]) for array in arrays)
    pieces = tuple(
        reader.scratch(scratch_parameter.name, scratch_spec)
        for scratch_parameter, scratch_spec in zip(scratch_parameters, scratch, strict=True)
    )
    axes = _axes(grid)
    _check_axes(where, specs, axes, dimension_semantics)
    outer = _outer(where, grid, made_scheme)
    by_name = {spec.name: spec for spec in specs}
    parameters = [_parameter(where, item, descriptions[item.name], by_name.get(item.name), reader) for item in passed]
    parameters += [_constant(where, constant) for constant in constants]
    names = {parameter.name for parameter in parameters}
    own = [item for item in constants_read(specs, pieces) if item not in names]
    source = PallasSource(
        name=made_name,
        signature=Signature((*parameters, *(Parameter(item, ParameterKind.CONSTEXPR) for item in own))),
        body=body,
        location=location,
        scheme=made_scheme,
        arrays=specs,
        scratch=pieces,
        passed=tuple(item.name for item in passed),
        keywords=tuple(constant.name for constant in constants),
        axes=axes,
        outer=outer,
        dimension_semantics=tuple(dimension_semantics or ()),
        vmem_limit_bytes=vmem_limit_bytes,
    )
    launched = grid if not outer else (math.prod(outer), *cast("Sequence[object]", grid)[len(outer) :])
    return Declaration(source=source, space=made_space, key=tuple(key), grid=launched, release_gil=release_gil)


def _parameters(where: str, body: Callable[..., object]) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    """Returns the positional and the keyword-only parameters."""
    parameters = list(inspect.signature(body).parameters.values())
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise SourceError(f"{where}: its parameter *{parameter.name} stands for any number of them; name each")
    by_keyword = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    return [parameter for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY], by_keyword


def _parameter(
    where: str, parameter: inspect.Parameter, declared: object, spec: ArraySpec | None, reader: SpecReader
) -> Parameter:
    if spec is not None:
        assert isinstance(declared, ArgSpec)  # only an ArgSpec is read as a spec
        element = None if declared.dtype is None else reader.dtype(f"{where}: {parameter.name}", declared.dtype)
        if element is not None and element.name in WIDE:
            raise SourceError(
                f"{where}: {parameter.name} has dtype={declared.dtype!r}; jax has no 64-bit arrays as it is set"
            )
        return Parameter(
            parameter.name,
            ParameterKind.POINTER,
            element,
            default=None if spec.may_be_left_out else NO_DEFAULT,
            effect=_EFFECTS[spec.role],
            specialize=False,
            align=False,
        )
    if declared == "constexpr":
        return _constant(where, parameter)
    if declared is None:
        return Parameter(parameter.name, specialize=False, align=False)
    if not isinstance(declared, str) or declared.startswith("*"):
        raise SourceError(
            f"{where}: args says {declared!r} of {parameter.name}; it is a silo.ArgSpec of an array, the dtype of a "
            "scalar, "
            '"constexpr", or None'
        )
    element = reader.dtype(f"{where}: {parameter.name}", declared)
    if element.name in WIDE or (element.kind is DTypeKind.FLOAT and element.bits < 16):
        raise SourceError(
            f"{where}: {parameter.name} is a scalar of {element}; scalars have 16 or 32 bits, or are bool or int8"
        )
    return Parameter(
        parameter.name, _SCALARS.get(element.kind, ParameterKind.INTEGER), element, specialize=False, align=False
    )


def _named_sizes(specs: Iterable[object], scratch: Sequence[Scratch]) -> list[str]:
    """Returns the names that are used as sizes; size functions may read them too."""
    sizes: list[object] = [size for scratch_spec in scratch for size in scratch_spec.shape]
    for spec in specs:
        if isinstance(spec, ArgSpec):
            sizes += [*(spec.block or ()), *(() if spec.shape is None or isinstance(spec.shape, str) else spec.shape)]
    return [size for size in sizes if isinstance(size, str)]


def _constant(where: str, parameter: inspect.Parameter) -> Parameter:
    try:
        default = NO_DEFAULT if parameter.default is parameter.empty else constant_value(parameter.default)
    except TypeError as error:
        raise SourceError(f"{where}: the default of {parameter.name}: {error}") from None
    return Parameter(parameter.name, ParameterKind.CONSTEXPR, default=default)


def _axes(grid: object) -> int:
    """Returns how many axes of a grid a body may read: a tuple's length; 3 for a function or None."""
    axes = len(cast("Sequence[object]", grid)) if isinstance(grid, tuple | list) else 0
    return axes or _AXES


def _outer(where: str, grid: object, scheme: Scheme) -> tuple[int, ...]:
    """Returns the outermost sizes of a grid of more than three axes, which a launch merges into one axis; else ()."""
    sizes = tuple(cast("Sequence[object]", grid)) if isinstance(grid, tuple | list) else ()
    if len(sizes) <= _AXES:
        return ()
    if scheme is Scheme.MOSAIC_GPU:
        raise SourceError(f"{where}: its grid has {len(sizes)} axes, and one for Mosaic GPU has at most {_AXES}")
    numbers = tuple(size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size >= 0)
    if len(numbers) < len(sizes):
        raise SourceError(
            f"{where}: a grid of {len(sizes)} axes is given by numbers alone; one of up to {_AXES} may be computed "
            "from the arguments: lay several over one axis with (axis, stride, blocks) in dims"
        )
    return numbers[: len(numbers) - _AXES + 1]


def _check_axes(where: str, specs: Sequence[ArraySpec], axes: int, semantics: Sequence[str] | None) -> None:
    for spec in specs:
        used = [dim[0] if isinstance(dim, tuple) else dim for dim in spec.dims if dim is not None]
        if used and max(used) >= axes:
            raise SourceError(
                f"{where}: {spec.name} has the axis {max(used)} of the grid in dims, and the grid has the axes 0 to "
                f"{axes - 1}: lay several over one with (axis, stride, blocks)"
            )
    if semantics is not None and (len(semantics) > axes or any(semantic not in _SEMANTICS for semantic in semantics)):
        raise SourceError(
            f"{where}: dimension_semantics={tuple(semantics)!r}; it is 'parallel' or 'arbitrary' for each axis of the "
            f"grid, which are {axes}"
        )
