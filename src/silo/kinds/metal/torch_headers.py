"""The headers for Metal kernels that an installed torch brings: ``<c10/metal/...>``."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from silo.errors import ToolchainError
from silo.kinds.metal.front.tokens import TokenKind, tokens_of

__all__ = ["digest_of_headers", "headers_folder", "includes_headers"]

_PREFIX = "<c10/metal/"


def includes_headers(text: str) -> bool:
    """Whether a text includes any of them.

    >>> includes_headers("#include <c10/metal/utils.h>"), includes_headers("#include <metal_stdlib>")
    (True, False)
    """
    lines = (one.text[1:].split() for one in tokens_of(text) if one.kind is TokenKind.DIRECTIVE)
    return any(words[:1] == ["include"] and "".join(words[1:]).startswith(_PREFIX) for words in lines)


@cache
def headers_folder() -> Path:
    """Where they are; torch is not imported. Raises ToolchainError: there is no torch, or it has none."""
    found = find_spec("torch")
    folder = None if found is None or found.origin is None else Path(found.origin).parent / "include"
    if folder is None or not (folder / "c10" / "metal").is_dir():
        raise ToolchainError(
            "the kernel includes <c10/metal/...>, which comes with torch, and "
            + ("torch is not installed" if folder is None else f"the torch that is installed has none in {folder}")
        )
    return folder


@cache
def digest_of_headers() -> str:
    """Names and contents of all of them."""
    state = hashlib.sha256()
    for path in sorted((headers_folder() / "c10" / "metal").glob("*.h")):
        state.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return state.hexdigest()[:32]
