"""The headers of a text: they are read from the folders that the user names and travel with the text.

A compiler is given no folder of the user's, so the key of the code holds every text that it depends on. A name that
leads out of these folders, or that a macro holds, is refused, because the compiler would open any file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from silo.errors import SourceError
from silo.frozen import frozen, replace
from silo.kinds.cuda_cpp.cuda_text import device_code, includes_of
from silo.kinds.cuda_cpp.cuda_unit import CudaText
from silo.plain_files import read_plain
from silo.sources.foreign_files import plain_lines, refuse_foreign_files

__all__ = ["HeaderFolders", "closed_text"]

_MOST_HEADERS = 2000
_MOST_BYTES = 64 << 20


@frozen
class HeaderFolders:
    """The sources of headers: the folder of the text, further folders, and headers given by their texts."""

    own: str | None
    folders: tuple[str, ...]
    texts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, include: Sequence[str | os.PathLike[str]] | Mapping[str, str], own: Path | None) -> HeaderFolders:
        """Returns the folders of ``include=``. Raises SourceError: one is not a folder."""
        beside = None if own is None else str(own.resolve())
        if isinstance(include, Mapping):
            return cls(beside, (), tuple(sorted(include.items())))
        folders = (include,) if isinstance(include, str | os.PathLike) else include
        for one in folders:
            if not Path(one).is_dir():
                raise SourceError(f"include={one!r} is not a folder")
        return cls(beside, tuple(str(Path(one).resolve()) for one in folders))


# Texts for headers of the host that device code needs little of; with device_only alone.
_INTEGERS = "#pragma once\n#include <cuda/std/cstdint>\nusing namespace cuda::std;\n"
_FLOATS = (
    "#pragma once\n#define FLT_MAX 3.402823466e+38F\n#define FLT_MIN 1.175494351e-38F\n"
    "#define FLT_EPSILON 1.192092896e-07F\n#define DBL_MAX 1.7976931348623157e+308\n"
    "#define DBL_EPSILON 2.2204460492503131e-16\n"
)
_LIMITS = (
    "#pragma once\n#define INT_MAX 2147483647\n#define INT_MIN (-INT_MAX - 1)\n#define UINT_MAX 4294967295U\n"
    "#define CHAR_BIT 8\n"
)
_TRAITS = "#pragma once\n#include <cuda/std/type_traits>\nnamespace std { using namespace cuda::std; }\n"
_MATHEMATICS = (
    "#pragma once\n#ifndef INFINITY\n#define INFINITY __int_as_float(0x7f800000)\n#endif\n"
    "#ifndef NAN\n#define NAN __int_as_float(0x7fffffff)\n#endif\n"
    "#ifndef M_PI\n#define M_PI 3.14159265358979323846\n#endif\n"
)
_HALVES = "#pragma once\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
_SHORT = MappingProxyType(
    {
        "math.h": _MATHEMATICS,
        "cmath": _MATHEMATICS,
        "cuda_runtime.h": _MATHEMATICS,  # nvcc's own includes the host's math.h
        "cublas_v2.h": _HALVES,
        "cublasLt.h": _HALVES,
        "stdint.h": _INTEGERS,
        "cstdint": _INTEGERS,
        "inttypes.h": _INTEGERS,
        "float.h": _FLOATS,
        "cfloat": _FLOATS,
        "limits.h": _LIMITS,
        "climits": _LIMITS,
        "type_traits": _TRAITS,
    }
)
_TOOLKIT_FOLDERS = ("cub", "cuda", "nv", "thrust", "cooperative_groups", "crt")
_TOOLKIT = frozenset(
    [
        "cooperative_groups.h",
        "cuComplex.h",
        "cuda_awbarrier.h",
        "cuda_awbarrier_primitives.h",
        "cuda_bf16.h",
        "cuda_fp16.h",
        "cuda_fp4.h",
        "cuda_fp6.h",
        "cuda_fp8.h",
        "cuda_pipeline.h",
        "cuda_pipeline_primitives.h",
        "cuda_tf32.h",
        "math_constants.h",
        "mma.h",
        "vector_types.h",
    ]
)
_REPLACED = MappingProxyType({"cub/cub.cuh": "#pragma once\n#include <cub/block/block_reduce.cuh>\n"})


def _in_toolkit(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return name in _TOOLKIT or (len(parts) > 1 and parts[0] in _TOOLKIT_FOLDERS)


def closed_text(text: CudaText, folders: HeaderFolders, shown: str, *, device_only: bool = False) -> CudaText:
    """Returns the text with every header of the user's that it may include. ``shown`` is its name in messages.

    With ``device_only`` the headers lose their host code too, and headers of the host that are not found are replaced
    by short ones or by nothing.

    Raises:
        SourceError: a header's name leads out of its folder, a macro holds it, or two files have one name.
    """
    text = replace(text, text=plain_lines(text.text))
    given = dict(folders.texts)
    found: dict[str, tuple[str, str]] = {}  # the text and the path by the name of an include
    waiting: list[tuple[str, str, str | None]] = [(text.text, shown, folders.own)]
    total = 0
    while waiting:
        own, label, beside = waiting.pop()
        refuse_foreign_files(own, label)
        for one in includes_of(own):
            place = f"{label}:{one.line}"
            if not one.name:
                raise SourceError(f"{place}: an #include whose file a macro names is not followed: write the name")
            _check_name(one.name, place)
            header = _header(one.name, place, given, folders, beside if one.quoted else None)
            if header is None:
                if device_only and one.name not in found and not _in_toolkit(one.name):
                    found[one.name] = (_SHORT.get(one.name, "#pragma once\n"), "")
                elif device_only and one.name in _REPLACED:
                    found[one.name] = (_REPLACED[one.name], "")
                continue
            content, path = plain_lines(header[0]), header[1]
            known = found.get(one.name)
            if known is not None:
                if known[1] != path and known[0] != content:
                    raise SourceError(f"{place}: {one.name!r} names two files, {known[1]} and {path}: rename one")
                continue
            if device_only:
                content = device_code(content)
            found[one.name] = (content, path)
            total += len(content)
            if len(found) > _MOST_HEADERS or total > _MOST_BYTES:
                raise SourceError(f"{shown}: its headers are more than {_MOST_HEADERS}, or {_MOST_BYTES >> 20} MiB")
            waiting.append((content, one.name, str(Path(path).parent) if path else None))
    return replace(text, headers=tuple(sorted((name, content) for name, (content, _) in found.items())))


def _check_name(name: str, place: str) -> None:
    if name.startswith(("/", "\\", "~")) or "\0" in name or (len(name) > 1 and name[1] == ":"):
        raise SourceError(f"{place}: {name!r} is an absolute path: name its folder in include= and write the rest")


def _header(
    name: str, place: str, given: Mapping[str, str], folders: HeaderFolders, beside: str | None
) -> tuple[str, str] | None:
    """Returns the text of a header and its path ("" if it was given as a text); None if it is not the user's."""
    if name in given:
        return given[name], ""
    roots = [Path(one) for one in (folders.own, *folders.folders) if one is not None]
    for base in dict.fromkeys((*([Path(beside)] if beside is not None else ()), *map(Path, folders.folders))):
        path = Path(os.path.normpath(base / name))
        inside = any(path.is_relative_to(root) for root in roots)
        if inside and path.is_file():
            real = path.resolve()
            if not any(real.is_relative_to(root) for root in roots):
                raise SourceError(f"{place}: {name!r} is a link that leads out of {base}")
            try:
                return read_plain(real).decode(), str(real)
            except (OSError, UnicodeDecodeError) as error:
                raise SourceError(f"{place}: the header {name!r} cannot be read: {error}") from error
    if ".." in PurePosixPath(name).parts:
        raise SourceError(f"{place}: {name!r} leads out of the folders of headers: name its folder in include=")
    return None
