"""Records calls of Helion's host functions without launching them, so that a bundle can be built without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from silo.core.cases import Case
from silo.core.values import DTypeKind, dtype
from silo.errors import CaseError
from silo.integrations.helion.helion_kernels import silo_kernel
from silo.integrations.helion.launcher_call import Axes, axes, check_options, name_of, plain_arguments

__all__ = ["CallNotes", "NotedCall"]


@dataclass(frozen=True)
class NotedCall:
    """One recorded call of the launcher: the kernel, grid, block and arguments."""

    kernel: object
    grid: Axes
    block: Axes
    arguments: tuple[object, ...]

    def silo_kernel(
        self,
        expected: Mapping[str, Callable[..., object]] | None = None,
        *,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> Any:  # noqa: ANN401  # the type that silo.cute returns
        """Makes a Silo kernel from this call, for a module that ``silo build`` reads.

        The call becomes the kernel's only case.

        The case's arrays have the shapes, strides and dtypes of the recorded arrays, but generated values. ``expected``
        maps a parameter to a function that takes all arrays by name, as numpy arrays, and returns the parameter's
        expected values.

        Raises:
            UnsupportedError, ArgumentError, ToolchainError: as for a launch.
            CaseError: ``expected`` names a parameter that is not an array.
        """
        kernel = silo_kernel(self.kernel, self.arguments, self.grid, self.block)
        names = kernel.kernel.source.signature.names[: len(self.arguments)]
        arrays = {
            name: argument for name, argument in zip(names, self.arguments, strict=True) if hasattr(argument, "shape")
        }
        expectations = dict(expected or {})
        for name in expectations:
            if name not in arrays:
                raise CaseError(f"{name_of(self.kernel)} has no array {name!r}: {', '.join(arrays)}")

        def noted(make: Any) -> Case:  # noqa: ANN401
            handles = {name: _made_like(make, array, written=name in expectations) for name, array in arrays.items()}

            def results(compute: Callable[..., object]) -> Callable[[], object]:
                return lambda: compute(**{name: handle.host for name, handle in handles.items()})

            return Case(
                args=tuple(handles.get(name, argument) for name, argument in zip(names, self.arguments, strict=True)),
                expected={name: results(compute) for name, compute in expectations.items()},
                rtol=rtol,
                atol=atol,
                grid=self.grid,
            )

        kernel.cases()(noted)
        return kernel


class CallNotes:
    """A launcher that only records: ``host_function(x, y, _launcher=notes)`` appends to ``notes.calls``."""

    def __init__(self) -> None:
        self.calls: list[NotedCall] = []

    def __call__(
        self,
        kernel: object,
        grid: tuple[int, ...],
        *args: object,
        block: tuple[int, ...] = (256, 1, 1),
        cute_compile_options: str | None = None,
        **options: object,
    ) -> None:
        """Records a launch. Raises for the options and arguments that :func:`default_cute_launcher` refuses."""
        check_options(kernel, cute_compile_options, options)
        self.calls.append(NotedCall(kernel, axes("grid", grid), axes("block", block), plain_arguments(kernel, args)))


def _made_like(make: Any, array: Any, *, written: bool) -> Any:  # noqa: ANN401  # Make, of any library, a handle
    """Returns an array of a case with the shape, strides and dtype of ``array``."""
    word = str(array.dtype).rpartition(".")[2]
    members = {"dtype": word, "strides": _strides(array)}
    shape = tuple(int(size) for size in array.shape)
    if written:
        return make.empty(shape, **members)
    if dtype(word).kind is DTypeKind.FLOAT:
        return make.normal(shape, **members)
    return make.integers(shape, high=2 if dtype(word).kind is DTypeKind.BOOL else 100, **members)


def _strides(array: Any) -> tuple[int, ...]:  # noqa: ANN401
    """Returns strides in elements, from torch's ``stride()`` or from numpy's ``strides`` in bytes."""
    if callable(getattr(array, "stride", None)):
        return tuple(int(step) for step in array.stride())
    return tuple(int(step) // int(array.itemsize) for step in array.strides)
