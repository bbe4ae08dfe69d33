"""Explains messages of NVRTC and clang: the first cause with the user's file and line, and a remedy if one is known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType

from silo.frozen import frozen
from silo.kinds.cuda_cpp.host_headers import HOST_NAMES

__all__ = ["Diagnosis", "diagnosed", "explained"]

_MESSAGE = re.compile(
    r"^(?P<file>[^\n(:]+?)(?:\((?P<line>\d+)\)|:(?P<other>\d+):\d+): (?:catastrophic |fatal )?error: (?P<text>.*)$",
    re.MULTILINE,
)
_SUMMARY = re.compile(
    r"^(?:\d+ (?:catastrophic )?errors? detected.*|Compilation terminated\.|Remark: .*)$\n?", re.MULTILINE
)
_WARNING = re.compile(r"^[^\n]*: warning #[^\n]*\n(?:  [^\n]*\n|\n)*", re.MULTILINE)
_MISSING = re.compile(r'cannot open source file "([^"]*)"|\'([^\']*)\' file not found')
_UNKNOWN = re.compile(
    r"identifier \"(?P<name>\w+)\" is undefined|(?:undeclared identifier|unknown type name) '(?P<other>\w+)'"
    r"|(?P<template>\w+) is not a template|(?:namespace|class) \"(?P<scope>\w+)\" has no member"
    r"|name must be a namespace (?P<rest>name)|(?P<colons>name) followed by"
)
_FOLLOWS = re.compile(
    r'attribute "__\w+__" does not apply here|without memory space annotations|incomplete type "void"'
)
_NAME_MAP = "__nv_name_map"
_MOST_LINES = 24

_CURES = MappingProxyType(
    {
        "stdint.h": "<cuda/std/cstdint>",
        "cstdint": "<cuda/std/cstdint>",
        "limits": "<cuda/std/limits>",
        "type_traits": "<cuda/std/type_traits>",
        "utility": "<cuda/std/utility>",
        "array": "<cuda/std/array>",
        "tuple": "<cuda/std/tuple>",
        "cmath": "nothing: mathematical functions are built in",
        "math.h": "nothing: mathematical functions are built in",
        "assert.h": "nothing: assert is built in",
        "cassert": "nothing: assert is built in",
        "cuda_runtime.h": "nothing: it is built in",
        "device_launch_parameters.h": "nothing: it is built in",
        "cub/cub.cuh": "the parts that the kernel uses: <cub/block/block_reduce.cuh>",
        "cuda.h": "nothing: declare struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; }; for maps",
    }
)
_HOST = "unannotated", "A function without execution space annotations", "is considered a host"


@frozen
class Diagnosis:
    """The first error of a compiler: file, line (0 if unknown), its text, and the rest of the messages."""

    file: str
    line: int
    text: str
    rest: str


def diagnosed(log: str) -> Diagnosis:
    r"""Returns the first error in a compiler's messages, without its warnings.

    >>> diagnosed('k.cu(2): error: identifier "y" is undefined\n    x[0] = y;\n\n1 error detected in ...\n').line
    2
    """
    shown = _SUMMARY.sub("", log).strip("\n")
    first = _first(shown)
    if first is None:
        text = next((line for line in shown.splitlines() if "error" in line or "fatal" in line), shown[:300])
        return Diagnosis("", 0, text.strip(), shown)
    line = int(first["line"] or first["other"])
    return Diagnosis(first["file"].strip(), line, first["text"].strip(), _WARNING.sub("", shown[first.start() :]))


def _named(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None)


def _first(shown: str) -> re.Match[str] | None:
    """Returns the match of the message that names the cause; None without any message.

    This is the first message, or the first one about an unknown name if the first message only follows from such an
    error.
    """
    messages = list(_MESSAGE.finditer(shown))
    if messages and _FOLLOWS.search(messages[0]["text"]) is not None:
        matches = [
            message
            for message in messages
            if message["file"] == messages[0]["file"] and _UNKNOWN.search(message["text"]) is not None
        ]
        return matches[0] if matches else messages[0]
    return messages[0] if messages else None


def explained(log: str, label: str, entry: str, *, device_only: bool, left_out: Sequence[str] = ()) -> str:
    """Returns the error for users: the cause first, then a remedy, then the compiler's own messages, shortened.

    ``label`` names the kernel in the error; ``entry`` is the C++ expression of the kernel. ``device_only``: only the
    device code was compiled, without the headers ``left_out``.
    """
    diagnosis = diagnosed(log)
    location = f"{diagnosis.file}:{diagnosis.line}: " if diagnosis.file else ""
    text = diagnosis.text
    if _NAME_MAP in diagnosis.file:
        location, text = "", f"entry={entry!r} names no kernel of the text: {text}"
    lines = [f"{label}: {location}{text}"]
    missing = _MISSING.search(text)
    alone = "" if device_only else "; device_only=True takes the file's device code without it"
    if missing is not None:
        name = missing[1] or missing[2]
        instead = f"include {_CURES[name]} instead" if name in _CURES else "name its folder in include=, if it is yours"
        if name in _CURES and _CURES[name].startswith("nothing"):
            instead = f"leave it out ({_CURES[name].removeprefix('nothing: ')})"
        lines.append(f"The header {name!r} is not among the toolkit's for device code: {instead}{alone}")
    elif (unknown := _UNKNOWN.search(text)) is not None and _named(unknown) in HOST_NAMES:
        lines.append(f"nvcc takes {_named(unknown)} from the host's headers{alone}")
    elif unknown is not None:
        if left_out:
            lines.append(
                f"These headers were left out, because no folder has them: {', '.join(left_out)}. If one of them "
                f"declares {_named(unknown)}, name its folder in include="
            )
        if (name := unknown["name"] or unknown["other"]) and f"{name}(" not in diagnosis.rest:
            lines.append(
                f'If the build of the file sets {name} (-D{name}=...), set it here: constants={{"{name}": ...}}'
            )
    elif "inline assembly is disabled" in text:
        lines.append("Inline assembly is refused for AMD GPUs: it may put any file into the code")
    elif any(word in diagnosis.rest for word in _HOST):
        lines.append(f"Host code is not compiled{alone}")
    rest_lines = diagnosis.rest.splitlines()
    if len(rest_lines) > _MOST_LINES:
        rest_lines = [*rest_lines[:_MOST_LINES], f"... {len(rest_lines) - _MOST_LINES} more lines"]
    return "\n".join([*lines, *rest_lines])
