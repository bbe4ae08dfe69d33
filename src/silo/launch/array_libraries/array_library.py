"""The protocol of array libraries, and the import of a library by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from silo.errors import CaseError
from silo.frozen import frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from silo.core.device import Place
    from silo.core.recipes import ArrayRecipe

__all__ = ["ArrayLibrary", "KnowsDevices", "LibraryDevice", "imported"]


def imported(package: str) -> Any:  # noqa: ANN401  # the module
    """A library by its package's name. ``CaseError`` if it is not installed."""
    try:
        return import_module(package)
    except ImportError as error:
        raise CaseError(f"--arrays {package}: {package} is not installed here ({error})") from None


@frozen
class LibraryDevice:
    """A library's description of a device that Silo knows through it alone.

    ``facts`` are members of ``silo.device()``.
    """

    model: str
    arch: str
    sm_count: int
    facts: Mapping[str, int | None]


class KnowsDevices(Protocol):
    """A module that lists an imported library's devices of one kind."""

    def count(self, library: Any, kind: str) -> int:  # noqa: ANN401  # the imported module
        """The number of devices."""
        ...

    def describe(self, library: Any, kind: str, index: int) -> LibraryDevice:  # noqa: ANN401
        """The description of one of them. DeviceError if the library reports too little."""
        ...


class ArrayLibrary(Protocol):
    """One array library: what :mod:`silo.launch.array_libraries.library_table` finds by name or by an array."""

    def offers(self, place: Place) -> bool:
        """Whether it makes the arrays of cases there unless a library is named; imports nothing."""
        ...

    def make(self, recipe: ArrayRecipe, place: Place) -> Any:  # noqa: ANN401  # its array
        """The array of a recipe. CaseError: the library lacks the dtype, the layout or the place."""
        ...

    def read(self, array: Any) -> NDArray[Any]:  # noqa: ANN401
        """A numpy array of the same elements: a view where the memory is the host's, else a copy.

        bfloat16 and the 8-bit floats come as ml_dtypes' types. Earlier work in the stream is done on return.
        """
        ...

    def bits(self, array: Any) -> NDArray[Any]:  # noqa: ANN401
        """As :meth:`read`, but unsigned integers of the elements' width, for which ml_dtypes is not needed."""
        ...

    def write(self, array: Any, bits: NDArray[Any]) -> None:  # noqa: ANN401
        """Write the :meth:`bits` of an array of equal shape into an array. ArgumentError if it is read-only."""
        ...

    def duplicate(self, array: Any) -> Any:  # noqa: ANN401
        """A copy with the same device, dtype, shape, strides and alignment (address modulo 16).

        Raises:
            ArgumentError: it cannot be copied in this way.
        """
        ...

    def keep(self, array: Any) -> Callable[[], None]:  # noqa: ANN401
        """A function that restores the present contents of an array; it owns the copy.

        Raises:
            ArgumentError: they cannot be copied.
        """
        ...
