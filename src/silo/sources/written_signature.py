"""Signatures as authors write them: one text for all parameters, or a type for each by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from silo.core.dtypes import dtype
from silo.core.launch_info import TensorMap
from silo.core.values import Value
from silo.errors import SourceError

__all__ = ["EXAMPLE", "written_map", "written_members"]

EXAMPLE = '"x: in *fp32, y: out *fp32, n: i32"'


def written_members(kernel: str, signature: str | Mapping[str, Value]) -> dict[str, Value]:
    """The text or value written for each parameter, by name.

    >>> written_members("add", "x: in *fp32, n: i32")
    {'x': 'in *fp32', 'n': 'i32'}

    Raises:
        SourceError: a part without a type, a name twice or not a name.
    """
    members = _split(kernel, signature) if isinstance(signature, str) else dict(signature)
    for name in members:
        if not name.isidentifier():
            raise SourceError(f"{kernel}: {name!r} in the signature is not a name; write for example {EXAMPLE}")
    return members


def _split(kernel: str, text: str) -> dict[str, Value]:
    members: dict[str, Value] = {}
    for part in text.split(",") if text.strip() else ():
        name, colon, written = part.partition(":")
        if not colon:
            raise SourceError(f"{kernel}: {part.strip()!r} in the signature has no type; write for example {EXAMPLE}")
        if name.strip() in members:
            raise SourceError(f"{kernel}: the signature has two parameters {name.strip()!r}")
        members[name.strip()] = written.strip()
    return members


# CUtensorMapDataType by the element's name, CUtensorMapSwizzle by bytes.
_ELEMENTS = {
    "u8": 0,
    "i8": 0,
    "i1": 0,
    "fp8e4nv": 0,
    "fp8e5": 0,
    "u16": 1,
    "i16": 1,
    "u32": 2,
    "i32": 3,
    "u64": 4,
    "i64": 5,
    "fp16": 6,
    "fp32": 7,
    "fp64": 8,
    "bf16": 9,
}
_SWIZZLES = {"": 0, "swizzle32": 1, "swizzle64": 2, "swizzle128": 3}
_BOX = re.compile(r"[1-9]\d{0,5}(?:x[1-9]\d{0,5}){0,4}")


def written_map(kernel: str, name: str, words: Sequence[str]) -> TensorMap | None:
    """Reads a tensor map: ``tensormap fp16 64x32 swizzle128``, the box outermost first; None for another type.

    >>> written_map("k", "m", ["tensormap", "fp16", "64x32", "swizzle64"]).box
    (64, 32)

    Raises:
        SourceError: an unknown element, box or swizzle.
    """
    if not words or words[0] != "tensormap":
        return None
    element, box, swizzle = (*words[1:], "", "", "")[:3]
    if element not in _ELEMENTS or not _BOX.fullmatch(box) or swizzle not in _SWIZZLES or len(words) > 4:
        raise SourceError(
            f"{kernel}: {name} is {' '.join(words)!r} in the signature; a tensor map is written as its element, its box"
            " and perhaps its swizzle: in tensormap fp16 64x32 swizzle64 (none, or 32, 64 or 128 bytes)"
        )
    sizes = tuple(int(one) for one in box.split("x"))
    return TensorMap(name, _SWIZZLES[swizzle], dtype(element).itemsize, _ELEMENTS[element], sizes)
