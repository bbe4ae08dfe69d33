"""The flags and headers with which clang compiles Metal kernels for the CPU, and torch's headers for Metal kernels."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from silo.core.device import Target
from silo.emulation.clang import common_flags, include_flag
from silo.errors import ToolchainError
from silo.kinds.metal.front.parser import TokenKind, tokens_of
from silo.kinds.metal.runtime import FOLDER, TORCH_HEADERS

__all__ = ["HEADER", "code_flags", "digest_of_headers", "headers_folder", "includes_headers"]

HEADER = FOLDER / "metal_stdlib"
"""The header with Metal's standard library."""

_CODE_FLAGS = (
    "-std=gnu++20",  # C++20 allows objects as template arguments, which Metal's tensor operations use
    "-Wno-reserved-user-defined-literal",  # for literals such as 1.0h
    "-Xclang",
    "-cl-single-precision-constant",  # 1.0 is a float in Metal
    "-fno-delete-null-pointer-checks",  # texts may load from a null array if they do not use the value
)


def code_flags(target: Target) -> tuple[str, ...]:
    """Returns the flags that affect code and precompiled headers. Raises TargetError for an unknown level."""
    return (*common_flags(target), *_CODE_FLAGS, *include_flag(FOLDER))


# ---- Torch's headers for Metal kernels: ``<c10/metal/...>`` ----

_PREFIX = f"<{TORCH_HEADERS}"


def includes_headers(text: str) -> bool:
    """Whether a text includes any of torch's headers.

    >>> includes_headers("#include <c10/metal/utils.h>"), includes_headers("#include <metal_stdlib>")
    (True, False)
    """
    lines = (token.text[1:].split() for token in tokens_of(text) if token.kind is TokenKind.DIRECTIVE)
    return any(words[:1] == ["include"] and "".join(words[1:]).startswith(_PREFIX) for words in lines)


@cache
def headers_folder() -> Path:
    """Returns the folder of torch's headers. Does not import torch.

    Raises ToolchainError if torch or the headers are missing.
    """
    spec = find_spec("torch")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent / "include"
    if folder is None or not (folder / "c10" / "metal").is_dir():
        raise ToolchainError(
            "the kernel includes <c10/metal/...>, which comes with torch, and "
            + ("torch is not installed" if folder is None else f"the torch that is installed has none in {folder}")
        )
    return folder


@cache
def digest_of_headers() -> str:
    """Returns a digest of the names and contents of torch's headers."""
    state = hashlib.sha256()
    for path in sorted((headers_folder() / "c10" / "metal").glob("*.h")):
        state.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return state.hexdigest()[:32]
