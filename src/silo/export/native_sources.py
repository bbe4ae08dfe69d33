"""The C sources that exports copy: libsilo's, and the part that frameworks call."""

from __future__ import annotations

from pathlib import Path

from silo.errors import PackageError
from silo.export.c_names import comment_text
from silo.export.exported_library import ExportedLibrary, filled
from silo.export.operations import frameworks_source, operations_of, torch_source

__all__ = ["framework_files", "licence", "native_sources"]

# ---- The C sources that exports copy: from the package, or from the source tree ----


def native_sources(part: str, marker: str) -> dict[str, bytes]:
    """The files of a part of ``native/`` by name: ``core`` or ``frameworks``; ``marker`` is a file that it always has.

    Raises:
        PackageError: the files are missing.
    """
    here = Path(__file__).parent
    for folder in (here / part, here.parents[2] / "native" / part):
        if (folder / marker).is_file():
            return {path.name: path.read_bytes() for path in sorted(folder.glob("*.[ch]"))}
    raise PackageError(
        f"libsilo's sources are neither in {here / part} nor in a source tree: install kernel-silo from its wheel"
    )


def licence() -> bytes:
    """The licence of these sources, which is copied with them.

    Raises:
        PackageError: the file is missing.
    """
    here = Path(__file__).parent
    for path in (here / "LICENSE", here.parents[2] / "LICENSE"):
        if path.is_file():
            return path.read_bytes()
    raise PackageError(f"the licence of libsilo's sources is not in {here}: install kernel-silo from its wheel")


# ---- The part of an export that frameworks call: the shared library, and beside it torch's operators ----

_SHARED = ("framework.h", "tvm_ffi.c", "tvm_ffi.h")
_TORCH = ("torch_op.h",)


def framework_files(library: ExportedLibrary, *, torch: bool) -> dict[str, bytes]:
    """The files of the folder ``frameworks``, which the export's CMakeLists.txt adds; ``torch``: with its operators.

    Raises:
        BundleError: a kernel cannot be an operator of torch.
        PackageError: the sources are missing.
    """
    operations = operations_of(library.functions)
    name, origin = library.name, comment_text(library.origin)
    cmake = filled("frameworks.cmake.in", ORIGIN=origin, NAME=name)
    texts = {f"{name}_frameworks.c": frameworks_source(name, operations)}
    if torch:
        texts[f"{name}_torch.cpp"] = torch_source(name, operations)
        cmake += filled("torch.cmake.in", NAME=name)
    texts["CMakeLists.txt"] = cmake
    held = native_sources("frameworks", "framework.h")
    sources = {file: held[file] for file in (*_SHARED, *(_TORCH if torch else ()))}
    made = {file: text.encode() for file, text in texts.items()}
    return {f"frameworks/{file}": data for file, data in {**sources, **made}.items()}
