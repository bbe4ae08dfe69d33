"""Messages between a pool and its workers: a length, JSON, and raw blobs. No pickles.

A message is a 4-byte big-endian length, that many bytes of JSON (an object; its member ``sizes`` lists the lengths of
the blobs), then the blobs.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from silo.core.launch_info import LaunchInfo
from silo.core.variant import CacheFiles, Compiled, CompiledBlob
from silo.errors import CompileError, SiloError, error_named

__all__ = [
    "Message",
    "decode_outcome",
    "encode",
    "encode_cache_files",
    "encode_compiled",
    "encode_error",
    "read_message",
]

Message = tuple[dict[str, Any], tuple[bytes, ...]]

_LENGTH = struct.Struct(">I")
_MAX_JSON = 1 << 28
_MAX_BLOB = 1 << 31


def encode(header: Mapping[str, object], blobs: Sequence[bytes] = ()) -> bytes:
    """Returns one message as bytes."""
    text = json.dumps({**header, "sizes": [len(blob) for blob in blobs]}, ensure_ascii=False).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *blobs])


def read_message(take: Callable[[int], bytes]) -> Message:
    """Reads one message; ``take(n)`` returns exactly n bytes or raises.

    Raises:
        CompileError: the bytes are not a message.
    """
    (length,) = _LENGTH.unpack(take(_LENGTH.size))
    if length > _MAX_JSON:
        raise CompileError(f"a worker process sent a message of {length} bytes")
    try:
        header: Any = json.loads(take(length))
        sizes: list[int] = header["sizes"]
        if any(not 0 <= size <= _MAX_BLOB for size in sizes):
            raise CompileError(f"a worker process sent blobs of {sizes} bytes")
    except (ValueError, TypeError, KeyError) as error:
        raise CompileError(f"a worker process sent what is not a message: {error}") from error
    return header, tuple(take(size) for size in sizes)


def encode_compiled(compiled: Compiled) -> bytes:
    """Returns the message for a successful job."""
    blobs = (compiled.blob, *compiled.sidecars)
    header = {
        "outcome": "compiled",
        "launch": compiled.launch.to_json(),
        "kinds": [blob.kind for blob in blobs],
        "log": compiled.log,
    }
    return encode(header, [blob.data for blob in blobs])


def encode_cache_files(files: CacheFiles) -> bytes:
    """Returns the message for a successful job that fills a framework's cache."""
    header = {"outcome": "files", "names": [name for name, _ in files.files], "reason": files.reason}
    return encode(header, [data for _, data in files.files])


def encode_error(error: SiloError) -> bytes:
    """Returns the message for a failed job: class name and text of the error."""
    return encode({"outcome": "error", "class": type(error).__name__, "message": str(error)})


def decode_outcome(message: Message) -> Compiled | CacheFiles | SiloError:
    """Returns the outcome in a message; an error has its original class."""
    header, blobs = message
    try:
        if header["outcome"] == "error":
            return _rebuild(str(header["class"]), str(header["message"]))
        if header["outcome"] == "files":
            names: list[str] = header["names"]
            return CacheFiles(tuple(zip(names, blobs, strict=True)), str(header["reason"]))
        kinds: list[str] = header["kinds"]
        first, *sidecars = (CompiledBlob(kind, data) for kind, data in zip(kinds, blobs, strict=True))
        return Compiled(LaunchInfo.from_json(header["launch"]), first, tuple(sidecars), str(header["log"]))
    except (KeyError, ValueError, TypeError) as error:
        return CompileError(f"a worker process sent what is not an outcome: {error}")


def _rebuild(name: str, message: str) -> SiloError:
    cls = error_named(name)
    if cls is not None:
        try:
            return cls(message)
        except TypeError:  # the class needs more arguments than a text; compilers do not raise such errors
            pass
    return CompileError(f"{name}: {message}")
