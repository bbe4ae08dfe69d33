"""The part of an export that frameworks call: the shared library, and beside it torch's operators."""

from __future__ import annotations

from silo.export.c_names import comment_text
from silo.export.exported_library import ExportedLibrary, filled
from silo.export.native_sources import native_sources
from silo.export.operations import operations_of
from silo.export.torch_op import torch_source
from silo.export.tvm_ffi import frameworks_source

__all__ = ["framework_files"]

_SHARED = ("framework.h", "tvm_ffi.c", "tvm_ffi.h")
_TORCH = ("torch_op.h",)


def framework_files(library: ExportedLibrary, *, torch: bool) -> dict[str, bytes]:
    """The files of the folder ``frameworks``, which the export's CMakeLists.txt adds; ``torch``: with its operators.

    Raises:
        BundleError: a kernel cannot be an operator of torch.
        PackageError: the sources are not here.
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
