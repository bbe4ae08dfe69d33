"""Whether two artifacts hold the same code: then measurements of one artifact hold for the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from silo.artifacts.artifact import Artifact
from silo.artifacts.elf import read_elf
from silo.core.decisions import Accepted, Decision, Rejected
from silo.errors import CompileError

__all__ = ["same_code"]

_GNU_HASH = 0x6FFFFFF6  # a section's type: the table in which a loader looks up the names of symbols


def same_code(one: Artifact, other: Artifact, read: Callable[[str], bytes | None]) -> Decision:
    """Decides whether a driver gets the same bytes from both, and launches them alike.

    The name of the entry may differ: for native code it contains a part of the job's key, which covers the compiler's
    identity. In the bytes of a shared object, that name and the table of hashes of names do not count then.

    Args:
        one: an artifact.
        other: another.
        read: the bytes of a blob by their sha256, or None; called only for native code with another entry.
    """
    if one.blob.kind != other.blob.kind:
        return Rejected(f"{one.blob.kind} there, {other.blob.kind} here")
    if replace(one.launch, entry="") != replace(other.launch, entry=""):
        return Rejected("it is launched in another way")
    if one.launch.entry == other.launch.entry:
        return Accepted() if one.blob.sha256 == other.blob.sha256 else Rejected("other machine code")
    if not one.runs_on_host or one.blob.size != other.blob.size:
        return Rejected("other machine code")
    texts = [read(artifact.blob.sha256) for artifact in (one, other)]
    if None in texts:
        return Rejected("the store has its code no longer")
    bare = [
        _without_name(text, artifact.launch.entry.encode())
        for text, artifact in zip(texts, (one, other), strict=True)
        if text is not None
    ]
    return Accepted() if bare[0] == bare[1] else Rejected("other machine code")


def _without_name(data: bytes, name: bytes) -> bytes:
    """A shared object with zeros in place of a symbol's name and of the hashes of names.

    Hashes are only cleared in 64-bit little-endian ELF; in another format, or in a damaged object, only the name is.
    """
    bare = bytearray(data.replace(name + b"\0", bytes(len(name) + 1)))
    try:
        sections = read_elf(data).sections
    except CompileError:
        sections = ()
    for section in sections:
        if section.type == _GNU_HASH:
            bare[section.offset : section.offset + section.size] = bytes(section.size)
    return bytes(bare)
