"""Array libraries: their protocol, their table by name and by an array of theirs, and arrays of cases made by one."""

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

# Module by name, in the order of preference if the user names no library.
_MODULES: Final[Mapping[str, str]] = {
    "numpy": "numpy_arrays",
    "torch": "torch_tensors",
    "buffer": "silo_buffers",
    "cupy": "cupy_arrays",
    "jax": "jax_arrays",
}
NAMES = tuple(_MODULES)

# By the package of an array's class, or the module if a package has more than arrays.
_OF_PACKAGE: Final[Mapping[str, str]] = {
    "numpy": "numpy",
    "torch": "torch",
    "silo.launch.buffers": "buffer",
    "cupy": "cupy",
    "jax": "jax",
    "jaxlib": "jax",
}

# Kinds of devices without a plug-in of Silo's in use here, and the library that lists them.
DEVICE_PACKAGES: Final[Mapping[str, str]] = {"xpu": "torch", "mtia": "torch", "mps": "torch", "tpu": "jax"}


def devices_through(package: str) -> KnowsDevices:
    """The module that lists a library's devices of :data:`DEVICE_PACKAGES`; the library is not imported."""
    return cast("KnowsDevices", import_module(f"{_HERE}.{package}_devices"))


def library_named(name: str) -> ArrayLibrary:
    """One library, as ``--arrays`` names it.

    Raises:
        CaseError: no library has this name.
    """
    if name not in _MODULES:
        raise CaseError(f"cases make arrays of {', '.join(NAMES)}, not of {name!r}")
    return _load(_MODULES[name])


def library_of(array: object) -> ArrayLibrary:
    """The library of an array, by the array's class or a base class of it."""
    for kind in type(array).__mro__:
        name = _OF_PACKAGE.get(kind.__module__) or _OF_PACKAGE.get(kind.__module__.partition(".")[0])
        if name is not None:
            return _load(_MODULES[name])
    return _load("other_arrays")


def default_library(place: Place) -> str:
    """The library that makes the arrays of cases at a place unless the user names one.

    CaseError if no library does.
    """
    for name in NAMES:
        if library_named(name).offers(place):
            return name
    raise CaseError(f"no array library that is loaded makes arrays on {place.name}: name one with --arrays")


def _load(module: str) -> ArrayLibrary:
    return cast("ArrayLibrary", import_module(f"{_HERE}.{module}").LIBRARY)


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
        """The library's description of a device. DeviceError if the library reports too little."""
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


def materialize(recipe: ArrayRecipe, library: str | None = None, place: Place = HOST) -> Any:  # noqa: ANN401
    """The array of a recipe, the same bytes in every library and on every device.

    Args:
        recipe: what to make.
        library: a name of :mod:`silo.launch.array_libraries.library_table`; None: on the CPU numpy where it is
            installed, on a GPU torch where it is loaded, and Buffers elsewhere.
        place: the memory that it is in.

    Raises:
        CaseError: an unknown library, or a library without the dtype, layout or device.
        DeviceError: the device is missing, or its memory is exhausted.
    """
    chosen = library_named(default_library(place) if library is None else library)
    what = f"an array of shape {list(recipe.shape)} and dtype {recipe.dtype}"
    refuse_large(recipe.bytes_to_make, what)
    try:
        return chosen.make(recipe, place)
    except MemoryError as error:
        raise CaseError(f"{what} takes {_size(recipe.bytes_to_make)}, and this machine has not as much left") from error


def refuse_large(needed: int, what: str) -> None:
    """``CaseError`` if arrays would take more memory than a case's arrays may."""
    allowed = case_allowance()
    if needed > allowed:
        why = "half of the memory that this process may use" if settings().case_bytes is None else "SILO_CASE_BYTES"
        raise CaseError(
            f"{what} would take {_size(needed)} of memory, and the arrays of a case may take {_size(allowed)} ({why}); "
            "take a smaller case, or set SILO_CASE_BYTES if this one is what you want"
        )


def _size(count: int) -> str:
    return f"{count / 2**30:.3g} GiB" if count >= 1 << 30 else f"{count / 2**20:.3g} MiB"
