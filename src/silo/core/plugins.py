"""Finds plug-ins: Silo's own in a table, others by entry point; and reads declarations of compilers and loaders.

A first launch looks up names of options and kinds of blobs, which the table answers without importing a plug-in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from silo.builtin_plugins import BLOB_KINDS, LAUNCH_OPTIONS, OPTIONS, SHIPPED
from silo.core.decisions import Rejected
from silo.errors import TrustError

if TYPE_CHECKING:
    from silo.core.declaration import BlobKind, CompilerDeclaration, LoaderDeclaration, Option

__all__ = [
    "COMPILERS",
    "DEVICES",
    "LOADERS",
    "SOURCES",
    "declarations",
    "declared_options",
    "driver_kinds",
    "installed_places",
    "installed_words",
    "is_blob_kind",
    "is_checked_text",
    "is_host_code",
    "is_launch_option",
    "is_option",
    "load_declaration",
    "load_loader_declaration",
    "load_place",
    "loader_of",
    "option_names",
    "options_for_targets",
    "part_of",
    "place_of",
    "shipped_options",
    "shipped_places",
    "threads_of_option",
    "why_unmeasured",
]

_Declaration = TypeVar("_Declaration", "CompilerDeclaration", "LoaderDeclaration")

COMPILERS = "silo.compilers"
DEVICES = "silo.devices"
LOADERS = "silo.loaders"
SOURCES = "silo.sources"


@cache
def driver_kinds() -> tuple[str, ...]:
    """Returns the kinds of devices that Silo has a driver for, sorted: the folders of ``silo/drivers``.

    >>> "cuda" in driver_kinds(), "kind_of_a_plugin" in driver_kinds()
    (True, False)
    """
    folder = os.path.join(os.path.dirname(os.path.dirname(__file__)), "drivers")  # noqa: PTH118, PTH120  # at a launch
    entries = os.listdir(folder)  # noqa: PTH208
    return tuple(sorted(name for name in entries if os.path.isfile(os.path.join(folder, name, "__init__.py"))))  # noqa: PTH113, PTH118


@cache
def _device_places() -> Mapping[str, str]:
    return {kind: f"silo.drivers.{kind}.{kind}_device:devices" for kind in driver_kinds()}


def shipped_places(group: str) -> Mapping[str, str]:
    """Returns ``module:attribute`` of each of Silo's own plug-ins in a group of entry points, by name."""
    return _device_places() if group == DEVICES else SHIPPED.get(group, {})


@cache
def installed_places(group: str) -> Mapping[str, str]:
    """Returns ``module:attribute`` of each installed plug-in of a group, by name in sorted order.

    Other plug-ins cannot take the names of Silo's own. Searches every installed distribution, once for each process and
    group: some milliseconds.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415  # a first launch does without

    places = {point.name: point.value for point in entry_points(group=group)} | dict(shipped_places(group))
    return dict(sorted(places.items()))


def place_of(group: str, name: str) -> str | None:
    """Returns ``module:attribute`` of one plug-in, None if it is not installed.

    Silo's own plug-ins are in a table, so only other plug-ins are searched for.
    """
    return shipped_places(group).get(name) or installed_places(group).get(name)


def load_place(import_path: str) -> object:
    """Imports the object that ``module:attribute`` names. Passes on the errors of importing it, and AttributeError."""
    module, _, attribute = import_path.partition(":")
    return getattr(import_module(module), attribute)


def part_of(group: str, name: str, part: str) -> Any:  # noqa: ANN401  # a module
    """Returns a module in the folder of one of Silo's own plug-ins; None if it does not exist.

    >>> part_of("silo.sources", "binary", "tracing") is None
    True
    """
    package = shipped_places(group).get(name, "").partition(":")[0].rpartition(".")[0]
    if not package:
        return None
    try:
        return import_module(f"{package}.{part}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{part}":
            raise
        return None


def _declared_at(import_path: str, kind: type[_Declaration], label: str) -> _Declaration | Rejected:
    """Imports the declaration that ``import_path`` (``module:attribute``) names.

    Returns ``Rejected`` if it cannot be used. ``label`` names the plug-in in messages.
    """
    try:
        declared = load_place(import_path)
    except Exception as error:  # noqa: BLE001  # whatever a foreign plug-in raises is the reason it is refused for
        return Rejected(f"{label} does not load: {type(error).__name__}: {error}")
    if not isinstance(declared, kind):
        return Rejected(f"{label} is no {kind.__name__} (silo.core.declaration) but {type(declared).__name__}")
    return declared


# -- Compilers ---------------------------------------------------------------------------------------------------------


@cache
def load_declaration(name: str, import_path: str) -> CompilerDeclaration | Rejected:
    """Returns the compiler declaration at ``import_path`` (``module:attribute``), or why it cannot be used."""
    from silo.core.declaration import CompilerDeclaration  # noqa: PLC0415  # a first launch does without

    label = f"the plug-in {name} ({import_path})"
    declared = _declared_at(import_path, CompilerDeclaration, label)
    if isinstance(declared, Rejected):
        return declared
    if declared.name != name:
        return Rejected(f"{label} declares that it is called {declared.name}")
    if import_path == shipped_places(COMPILERS).get(name):
        return declared
    for option in declared.options:
        if not option.name.startswith(f"{name}_"):
            return Rejected(f"{label} declares the option {option.name}: its name must begin with {name}_")
    for kind in declared.blobs:
        if BLOB_KINDS.get(kind.name, known_flags := (kind.host_code, kind.checked_text)) != known_flags:
            return Rejected(f"{label} declares the kind {kind.name} of blobs to be other than Silo does")
    return declared


def declarations() -> Iterator[CompilerDeclaration]:
    """The declarations of all usable installed compilers. :func:`load_declaration` reports the others."""
    for name, installed_place in installed_places(COMPILERS).items():
        declared = load_declaration(name, installed_place)
        if not isinstance(declared, Rejected):
            yield declared


def declared_options() -> Iterator[Option]:
    """Yields the options of all installed compilers; an option that several compilers have comes once for each."""
    return (option for declared in declarations() for option in declared.options)


def shipped_options() -> tuple[str, ...]:
    """Returns the names of the options that Silo's own compilers have."""
    return OPTIONS


def options_for_targets(kind: str) -> frozenset[str]:
    """Returns the names of the options that have a meaning only for one kind of targets.

    >>> "cpu_chunk" in options_for_targets("cpu"), "enable_fp_fusion" in options_for_targets("cpu")
    (True, False)
    """
    target_options = {
        option.name for declaration in declarations() if kind in declaration.targets for option in declaration.options
    }
    return frozenset(
        target_options
        - {
            option.name
            for declaration in declarations()
            if kind not in declaration.targets
            for option in declaration.options
        }
    )


def option_names() -> tuple[str, ...]:
    """The names of the options of all installed compilers, Silo's own first."""
    return tuple(dict.fromkeys((*shipped_options(), *(option.name for option in declared_options()))))


@lru_cache(4096)
def is_option(name: str) -> bool:
    """Whether a compiler has an option of this name. In configs, spaces and calls every other name is a parameter.

    >>> is_option("num_warps"), is_option("BLOCK")
    (True, False)
    """
    return name in shipped_options() or _own_option(name) is not None


@lru_cache(4096)
def is_launch_option(name: str) -> bool:
    """Whether the option is stored in launch info."""
    if name in shipped_options():
        return name in LAUNCH_OPTIONS
    option = _own_option(name)
    return option is not None and option.launch


@lru_cache(4096)
def threads_of_option(name: str) -> int:
    """Returns the number of a block's threads per unit of the option; 0 if the option does not set threads."""
    return max((option.threads for option in declared_options() if option.name == name), default=0)


def _own_option(name: str) -> Option | None:
    """Returns the option called ``name`` of a plug-in that Silo does not ship; None if no plug-in has this option.

    The name of such an option begins with its plug-in's name (``stack_depth``).
    """
    plugin, separator, _ = name.partition("_")
    # Most names are parameters, for example BLOCK_SIZE. For these no search for plug-ins is needed.
    if not separator or not plugin.islower() or plugin in shipped_places(COMPILERS):
        return None
    location = installed_places(COMPILERS).get(plugin)
    declared = None if location is None else load_declaration(plugin, location)
    if declared is None or isinstance(declared, Rejected):
        return None
    return next((option for option in declared.options if option.name == name), None)


def installed_words() -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Returns the names that installed plug-ins allow in bundles, in addition to Silo's own names.

    The tuples are kinds of blobs, launch options, kinds of text that a check compiles, and the kinds of all devices.
    """
    kinds = {kind.name for declared in declarations() for kind in declared.blobs} | set(installed_places(LOADERS))
    others = tuple(sorted(kinds - set(BLOB_KINDS)))
    options = {option.name for option in declared_options()} - set(OPTIONS)
    return (
        others,
        tuple(sorted(name for name in options if is_launch_option(name))),
        tuple(kind for kind in others if is_checked_text(kind)),
        tuple(sorted(installed_places(DEVICES))),
    )


# -- Loaders -----------------------------------------------------------------------------------------------------------


@cache
def load_loader_declaration(kind: str, import_path: str) -> LoaderDeclaration | Rejected:
    """Returns the loader declaration at ``import_path`` (``module:attribute``), or the reason why it cannot be used."""
    from silo.core.declaration import LoaderDeclaration  # noqa: PLC0415  # a first launch does without

    label = f"the loader of {kind} ({import_path})"
    declared = _declared_at(import_path, LoaderDeclaration, label)
    if isinstance(declared, Rejected):
        return declared
    if declared.kind != kind:
        return Rejected(f"{label} declares that it loads {declared.kind}")
    return declared


def loader_of(kind: str) -> LoaderDeclaration | Rejected | None:
    """Returns the loader of a kind of blobs, or why it cannot be used; None if the device itself loads the kind.

    Devices load the blobs of Silo's own compilers, unless Silo ships a loader for the kind. Other plug-ins cannot
    register loaders for these kinds.
    """
    places = shipped_places(LOADERS) if kind in BLOB_KINDS else installed_places(LOADERS)
    location = places.get(kind)
    return None if location is None else load_loader_declaration(kind, location)


def why_unmeasured(kinds: Iterable[str], target_kind: str) -> str:
    """Returns why launch times of code of these kinds do not count on targets of this kind; "" if they count.

    >>> why_unmeasured(["cubin"], "cuda"), why_unmeasured(["jaxexp"], "tpu")
    ('', '')
    """
    for kind in kinds:
        loader = loader_of(kind)
        if loader is not None and not isinstance(loader, Rejected):
            reason = dict(loader.unmeasured).get(target_kind)
            if reason is not None:
                return reason
    return ""


# -- Kinds of blobs ----------------------------------------------------------------------------------------------------


def _declared_kinds(kind: str) -> tuple[BlobKind, ...]:
    return tuple(blob for declared in declarations() for blob in declared.blobs if blob.name == kind)


def is_blob_kind(kind: str) -> bool:
    """Whether an installed compiler makes blobs of this kind, or an installed loader loads them."""
    return kind in BLOB_KINDS or bool(_declared_kinds(kind)) or loader_of(kind) is not None


@lru_cache(256)
def is_host_code(kind: str) -> bool:
    """Whether blobs of this kind run in the process that loads them: true if at least one plug-in declares so.

    Only plug-ins installed here decide this; a file that holds a blob names the blob's kind and nothing else.

    Raises:
        TrustError: no installed compiler or loader declares the kind.
    """
    flags = BLOB_KINDS.get(kind)
    if flags is not None:
        return flags[0]
    declared = [declared_kind.host_code for declared_kind in _declared_kinds(kind)]
    loader = loader_of(kind)
    if loader is not None and not isinstance(loader, Rejected):
        declared.append(loader.host_code)
    if not declared:
        raise TrustError(
            f"code of kind {kind!r} is not used: no compiler or loader that is installed here declares this kind, so "
            "nobody knows whether it would run in this process; install the plug-in that makes or loads "
            f"it{_unusable(loader)}"
        )
    return any(declared)


def is_checked_text(kind: str) -> bool:
    """Whether blobs of this kind are text that a check compiles."""
    flags = BLOB_KINDS.get(kind)
    return flags[1] if flags is not None else any(declared_kind.checked_text for declared_kind in _declared_kinds(kind))


def _unusable(loader: LoaderDeclaration | Rejected | None) -> str:
    loaders = [
        loader,
        *(load_declaration(name, installed_place) for name, installed_place in installed_places(COMPILERS).items()),
    ]
    reasons = "; ".join(declared.reason for declared in loaders if isinstance(declared, Rejected))
    return f" ({reasons})" if reasons else ""
