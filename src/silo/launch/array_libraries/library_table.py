"""The one table of array libraries: by name, and by an array of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from silo.errors import CaseError

if TYPE_CHECKING:
    from silo.core.device import Place
    from silo.launch.array_libraries.array_library import ArrayLibrary, KnowsDevices

__all__ = ["DEVICE_PACKAGES", "NAMES", "default_library", "devices_through", "library_named", "library_of"]

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
