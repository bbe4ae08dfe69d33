"""Signatures as authors write them: one text for all parameters, or a type for each by name."""

from __future__ import annotations

from collections.abc import Mapping

from silo.core.values import Value
from silo.errors import SourceError

__all__ = ["EXAMPLE", "written_members"]

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
