"""Makes Silo kernels of Helion's CuTe kernels at their first launch, and provides launchers with Helion's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from silo.core.values import Value, dtype
from silo.errors import ArgumentError
from silo.forks import Mutex
from silo.frozen import frozen
from silo.integrations.helion.cute_host_text import STREAM, HostParameter, host_function, host_text, shares_loads
from silo.integrations.helion.launcher_call import (
    Axes,
    axes,
    check_options,
    launch_marks,
    marks_said,
    name_of,
    plain_arguments,
)
from silo.kernels.bundle_kernels import Kernels
from silo.kernels.kernel import maker

__all__ = [
    "KernelsOfHelion",
    "bundled_cute_launcher",
    "default_cute_launcher",
    "host_parameters",
    "silo_kernel",
    "written_signature",
]

_KEPT = 512  # the kernels to keep: a program that tunes makes thousands, and uses most of them only briefly
# For each Python type of a number that Helion's host code passes: Silo's dtype, and the DSL type that Helion declares.
_SCALARS = {bool: ("i1", "cutlass.Boolean"), int: ("i64", "cutlass.Int64"), float: ("fp32", "cutlass.Float32")}
_CONSTANT = "constexpr"


@frozen
class _Made:
    """A Silo kernel (``made``) for one kernel of Helion, and the values that the Silo kernel was made for.

    ``said`` are the attributes that Helion set on its kernel. ``own`` are the grid and the ranks of the arguments, if
    Silo generated a host function that contains them; otherwise ``own`` is empty. ``kernel``, Helion's object, is
    referenced so that its id is not reused.
    """

    kernel: object
    said: tuple[object, ...]
    own: tuple[object, ...]
    made: Any


class KernelsOfHelion:
    """A cache of Silo kernels by Helion kernel and argument types. Safe to use from several threads."""

    def __init__(self) -> None:
        self._cached_kernels: dict[tuple[object, ...], _Made] = {}
        self._lock = Mutex()

    def serving(self, kernel: object, arguments: Sequence[object], grid: Axes, block: Axes) -> Any:  # noqa: ANN401
        """Returns the Silo kernel that serves a launch, and makes it if necessary.

        Raises UnsupportedError or SourceError if Silo cannot make it.
        """
        types: list[object] = []
        empty = False
        for argument in arguments:
            shape = getattr(argument, "shape", None)
            if shape is None:
                types.append(type(argument))
            else:
                types.append(getattr(argument, "dtype", None))
                empty = empty or 0 in shape
        key = (id(kernel), block, empty, *types)
        marks_text = marks_said(kernel)
        cached_kernel = self._cached_kernels.get(key)
        if (
            cached_kernel is not None
            and cached_kernel.said == marks_text
            and (not cached_kernel.own or cached_kernel.own == _host_values(arguments, grid))
        ):
            return cached_kernel.made
        marks = launch_marks(kernel)
        new_kernel = silo_kernel(kernel, arguments, grid, block, dynamic=empty)
        with self._lock:
            self._cached_kernels.pop(key, None)
            self._cached_kernels[key] = _Made(
                kernel, marks_text, () if marks.plain else _host_values(arguments, grid), new_kernel
            )
            while len(self._cached_kernels) > _KEPT:
                del self._cached_kernels[next(iter(self._cached_kernels))]
        return new_kernel


def _host_values(arguments: Sequence[object], grid: Axes) -> tuple[object, ...]:
    """Returns the values that a generated host function depends on: the grid, and the ranks of the arguments."""
    return (grid, *map(_rank, arguments))


def silo_kernel(kernel: object, arguments: Sequence[object], grid: Axes, block: Axes, *, dynamic: bool = False) -> Any:  # noqa: ANN401
    """Makes a Silo kernel of a Helion kernel, for calls with arguments of these types.

    With ``dynamic``, shapes and strides are not constants of the code even if the kernel is marked otherwise.
    ``dynamic`` is necessary for arrays without elements, whose shapes the DSL cannot make constant.

    Raises:
        UnsupportedError: a plan that Silo does not serve.
        ArgumentError: more arguments than parameters, or an array of an unknown dtype.
        ToolchainError: the DSL is not installed.
    """
    marks = launch_marks(kernel)
    layouts = "dynamic" if dynamic or marks.dynamic else "static"
    signature = written_signature(kernel, arguments)
    cute = maker("cute")
    name = name_of(kernel)
    if marks.plain:
        return cute(kernel, signature=signature, block=block, cluster=marks.cluster, layouts=layouts, name=name)
    parameters, host = host_parameters(signature, arguments), "silo"
    # these are multicast loads, and only the DSL's own host code makes the tensor maps for them
    if shares_loads(name, marks.plans, len(arguments)):
        parameters, host = [*parameters, HostParameter(STREAM, "CUstream")], "dsl"
    text = host_text(name, parameters, marks, grid, block)
    function = host_function(kernel, text, parameters)
    return cute(function, signature=signature, host=host, layouts=layouts, grid=grid, name=name)


def written_signature(kernel: object, arguments: Sequence[object]) -> Mapping[str, Value]:
    """Returns the parameters that the host passes, in the kernel's order, for ``silo.cute(signature=...)``."""
    parameters = inspect.signature(kernel).parameters  # pyright: ignore[reportArgumentType]  # a function of the DSL
    if len(arguments) > len(parameters):
        parameter_names = ", ".join(parameters) or "no parameters"
        raise ArgumentError(f"{name_of(kernel)}: {len(arguments)} arguments, and the kernel has {parameter_names}")
    types: dict[str, Value] = {}
    for position, (name, argument) in enumerate(zip(parameters, arguments, strict=False)):
        if hasattr(argument, "shape"):
            types[name] = f"*{_element(kernel, position, argument)}"
        elif _is_constexpr(parameters[name].annotation):
            types[name] = _CONSTANT
        else:
            types[name] = _SCALARS[cast("type[bool | int | float]", type(argument))][0]
    return types


def _element(kernel: object, index: int, array: Any) -> str:  # noqa: ANN401  # of any library
    word = str(array.dtype).rpartition(".")[2]
    try:
        return dtype(word).short
    except KeyError:
        raise ArgumentError(
            f"{name_of(kernel)}: argument {index} is an array of {word}, which Silo does not know"
        ) from None


def _is_constexpr(annotation: object) -> bool:
    """Returns whether a parameter is a ``Constexpr``; its annotation may be a string."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", repr(annotation))
    return text.partition("[")[0].rpartition(".")[2] == "Constexpr"


def host_parameters(signature: Mapping[str, Value], arguments: Sequence[object]) -> list[HostParameter]:
    """Converts the parameters of ``signature`` to parameters of the generated host function."""
    words = dict(_SCALARS.values()) | {_CONSTANT: "cutlass.Constexpr"}
    return [
        HostParameter(name, words.get(str(written), "cute.Tensor"), _rank(argument))
        for (name, written), argument in zip(signature.items(), arguments, strict=True)
    ]


def _rank(argument: Any) -> int | None:  # noqa: ANN401
    """Returns the number of axes of an array; None for a number."""
    shape = getattr(argument, "shape", None)
    return None if shape is None else len(shape)


_kernels = KernelsOfHelion()


def default_cute_launcher(
    kernel: object,
    grid: tuple[int, ...],
    *args: object,
    block: tuple[int, ...] = (256, 1, 1),
    cute_compile_options: str | None = None,
    **options: object,
) -> None:
    """Launches a CuTe kernel that Helion generated; pass this as ``_launcher=`` of its host function.

    The first launch with arguments of these types compiles the kernel, and Silo's store keeps the code. Shapes and
    strides are constants of the code, unless Helion marked the kernel otherwise. An empty grid launches nothing.

    Args:
        kernel: the ``@cute.kernel`` function, with Helion's attributes (cluster, plans of its operands).
        grid: blocks along one to three axes.
        *args: the kernel's arguments in its order: arrays on the GPU, numbers.
        block: threads of a block along one to three axes.
        cute_compile_options: options of the DSL. Only options that change neither results nor speed are accepted.
        **options: must be empty.

    Raises:
        GridError: the grid or block is not a tuple of one to three numbers.
        UnsupportedError: an option, or a plan that is not of one matmul; the message names it.
        ArgumentError: an argument that is neither an array nor a number.
    """
    check_options(kernel, cute_compile_options, options)
    blocks, threads = axes("grid", grid), axes("block", block)
    if min(blocks) <= 0:
        return
    arguments = plain_arguments(kernel, args)
    _kernels.serving(kernel, arguments, blocks, threads)[blocks](*arguments)


def bundled_cute_launcher(kernels: Kernels) -> Callable[..., None]:
    """Returns a launcher that takes the code from a bundle, for a process that may lack the DSL.

    ``kernels`` is the result of ``silo.load``. The launcher uses only the name of the kernel object that it is called
    with; the block size is stored in the bundle.
    """

    def launch(
        kernel: object,
        grid: tuple[int, ...],
        *args: object,
        block: tuple[int, ...] = (256, 1, 1),
        cute_compile_options: str | None = None,
        **options: object,
    ) -> None:
        check_options(kernel, cute_compile_options, options)
        blocks = axes("grid", grid)
        axes("block", block)
        if min(blocks) <= 0:
            return
        bundled: Any = kernels[name_of(kernel)]
        bundled[blocks](*plain_arguments(kernel, args))

    return launch
