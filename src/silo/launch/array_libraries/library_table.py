"""The protocol of array libraries, their lookup by name or by an array, and the making of a case's arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from silo.core.device import HOST, Place
from silo.core.recipes import ArrayRecipe
from silo.errors import CaseError
from silo.frozen import frozen
from silo.settings import case_allowance, settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DEVICE_PACKAGES",
    "NAMES",
    "ArrayLibrary",
    "KnowsDevices",
    "LibraryDevice",
    "default_library",
    "devices_through",
    "imported",
    "library_named",
    "library_of",
    "materialize",
    "refuse_large",
]

_HERE = "silo.launch.array_libraries"

# The module of each library, by the name that users give. For arrays in some memory (a place: the host or a device),
# the first library whose ``offers`` returns True is the default.
_MODULES: Final[Mapping[str, str]] = {
    "numpy": "numpy_arrays",
    "torch": "torch_tensors",
    "buffer": "silo_buffers",
    "cupy": "cupy_arrays",
    "jax": "jax_arrays",
}
NAMES = tuple(_MODULES)

# Maps the top-level package of an array's class to the name of the array's library. silo.Buffer is found by its module,
# because the package silo has many classes that are not arrays.
_OF_PACKAGE: Final[Mapping[str, str]] = {
    "numpy": "numpy",
    "torch": "torch",
    "silo.launch.buffers": "buffer",
    "cupy": "cupy",
    "jax": "jax",
    "jaxlib": "jax",
}

# Device kinds that no plug-in of Silo drives, and the library that lists their devices.
DEVICE_PACKAGES: Final[Mapping[str, str]] = {"xpu": "torch", "mtia": "torch", "mps": "torch", "tpu": "jax"}


def devices_through(package: str) -> KnowsDevices:
    """Returns the module that lists a library's devices (:data:`DEVICE_PACKAGES`), without importing the library."""
    return cast("KnowsDevices", import_module(f"{_HERE}.{package}_devices"))


def library_named(name: str) -> ArrayLibrary:
    """Returns the library with a name that ``--arrays`` accepts.

    Raises:
        CaseError: no library has this name.
    """
    if name not in _MODULES:
        raise CaseError(f"cases make arrays of {', '.join(NAMES)}, not of {name!r}")
    return _load(_MODULES[name])


def library_of(array: object) -> ArrayLibrary:
    """Returns the library of an array, found by the package of the array's class or of one of its base classes."""
    for kind in type(array).__mro__:
        name = _OF_PACKAGE.get(kind.__module__) or _OF_PACKAGE.get(kind.__module__.partition(".")[0])
        if name is not None:
            return _load(_MODULES[name])
    return _load("other_arrays")


def default_library(place: Place) -> str:
    """Returns the name of the library that makes a case's arrays in the memory ``place`` if the user names no library.

    Raises:
        CaseError: no installed library can make arrays there.
    """
    for name in NAMES:
        if library_named(name).offers(place):
            return name
    raise CaseError(f"no array library that is loaded makes arrays on {place.name}: name one with --arrays")


def _load(module: str) -> ArrayLibrary:
    return cast("ArrayLibrary", import_module(f"{_HERE}.{module}").LIBRARY)


def imported(package: str) -> Any:  # noqa: ANN401  # the module
    """Imports a library by its package name. Raises ``CaseError`` if it is not installed."""
    try:
        return import_module(package)
    except ImportError as error:
        raise CaseError(f"--arrays {package}: {package} is not installed here ({error})") from None


@frozen
class LibraryDevice:
    """A library's description of a device that Silo has no driver for.

    ``facts`` become members of ``silo.device()``.
    """

    model: str
    arch: str
    sm_count: int
    facts: Mapping[str, int | None]


class KnowsDevices(Protocol):
    """The interface of a module that lists the devices of one kind through an imported array library."""

    def count(self, library: Any, kind: str) -> int:  # noqa: ANN401  # the imported module
        """Returns the number of devices."""
        ...

    def describe(self, library: Any, kind: str, index: int) -> LibraryDevice:  # noqa: ANN401
        """Returns the library's description of a device.

        Raises:
            DeviceError: the library does not report enough about the device.
        """
        ...


class ArrayLibrary(Protocol):
    """The interface of one array library's module, which :func:`library_named` and :func:`library_of` return."""

    def offers(self, place: Place) -> bool:
        """Returns whether this library may be the default for cases' arrays in memory ``place``. Imports nothing."""
        ...

    def make(self, recipe: ArrayRecipe, place: Place) -> Any:  # noqa: ANN401  # its array
        """Makes the array of a recipe. Raises ``CaseError`` if the library lacks the dtype, the layout or the place."""
        ...

    def read(self, array: Any) -> NDArray[Any]:  # noqa: ANN401
        """Returns a numpy array of the same elements: a view of host memory, a copy of device memory.

        bfloat16 and the 8-bit floats have the dtypes of ml_dtypes. Earlier work in the stream is done on return.
        """
        ...

    def bits(self, array: Any) -> NDArray[Any]:  # noqa: ANN401
        """Like :meth:`read`, but returns unsigned integers of the elements' width, which works without ml_dtypes."""
        ...

    def write(self, array: Any, bits: NDArray[Any]) -> None:  # noqa: ANN401
        """Writes ``bits``, the result of :meth:`bits` for an array of equal shape, to ``array``.

        Raises ``ArgumentError`` if ``array`` is read-only.
        """
        ...

    def duplicate(self, array: Any) -> Any:  # noqa: ANN401
        """Returns a copy with the same device, dtype, shape, strides and alignment (address modulo 16).

        Raises:
            ArgumentError: the array cannot be copied in this way.
        """
        ...

    def keep(self, array: Any) -> Callable[[], None]:  # noqa: ANN401
        """Copies the contents of an array, and returns a function that writes the copy back to the array.

        Raises:
            ArgumentError: the contents cannot be copied.
        """
        ...


def materialize(recipe: ArrayRecipe, library: str | None = None, place: Place = HOST) -> Any:  # noqa: ANN401
    """Makes the array of a recipe. The bytes are the same in every library and on every device.

    Args:
        recipe: the dtype, shape, strides and contents of the array.
        library: a name of :mod:`silo.launch.array_libraries.library_table`; None: on the CPU numpy if it is installed,
            on a GPU torch if it is loaded, and ``silo.Buffer`` otherwise.
        place: the memory to allocate the array in.

    Raises:
        CaseError: an unknown library, or a library without the dtype, layout or device.
        DeviceError: the device is missing, or its memory is exhausted.
    """
    chosen = library_named(default_library(place) if library is None else library)
    array = f"an array of shape {list(recipe.shape)} and dtype {recipe.dtype}"
    refuse_large(recipe.bytes_to_make, array)
    try:
        return chosen.make(recipe, place)
    except MemoryError as error:
        raise CaseError(
            f"{array} takes {_size(recipe.bytes_to_make)}, and this machine has not as much left"
        ) from error


def refuse_large(needed: int, label: str) -> None:
    """Raises ``CaseError`` if arrays would take more memory than a case's arrays may."""
    allowed = case_allowance()
    if needed > allowed:
        why = "half of the memory that this process may use" if settings().case_bytes is None else "SILO_CASE_BYTES"
        raise CaseError(
            f"{label} would take {_size(needed)} of memory, and the arrays of a case may take {_size(allowed)} "
            f"({why}); "
            "take a smaller case, or set SILO_CASE_BYTES if this one is what you want"
        )


def _size(count: int) -> str:
    return f"{count / 2**30:.3g} GiB" if count >= 1 << 30 else f"{count / 2**20:.3g} MiB"
