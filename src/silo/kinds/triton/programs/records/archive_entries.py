"""The entries of a recording: variants with their files of Triton's cache, other files of that cache, and winners."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TypeAlias

from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.format import FILE_KIND
from silo.bundle.update import blob_ref
from silo.core.decisions import Accepted, Decision, Rejected
from silo.core.json_reader import TEXT, Persisted, listed, paired, value_of
from silo.core.signature import Signature
from silo.core.values import JSON, malformed
from silo.frozen import field, frozen
from silo.sources.reached_code import Names
from silo.tuner.foreign_decision import ForeignWinner

__all__ = [
    "GROUP",
    "NAMES",
    "WINNERS",
    "CacheFile",
    "Entry",
    "ForeignWinner",
    "RecordedVariant",
    "TextNames",
    "attachment_name",
    "cache_place",
    "check_cache_name",
    "entry_from_json",
    "file_ref",
    "key_of",
]

WINNERS = "triton/winners.jsonl"
NAMES = "triton/names.jsonl"
_CACHE = "triton/"
GROUP = "__grp__"  # begins the name of the file in which Triton lists the files of one key, by their paths
_KEY = re.compile(r"[A-Za-z0-9]{1,128}")
_MOST_NAME_BYTES = 200  # Triton adds a prefix; file systems take 255


def attachment_name(key: str, name: str) -> str:
    """The name of a file of Triton's cache among a bundle's attachments."""
    return f"{_CACHE}{key}/{name}"


def cache_place(attachment: str) -> tuple[str, str] | None:
    """The inverse of :func:`attachment_name`; None of any other attachment.

    >>> cache_place(attachment_name("K", "add.cubin")), cache_place(WINNERS)
    (('K', 'add.cubin'), None)
    """
    key, separator, name = attachment.removeprefix(_CACHE).partition("/")
    return (key, name) if attachment.startswith(_CACHE) and separator and key and name and "/" not in name else None


def check_cache_name(key: str, name: str) -> Decision:
    """Whether Silo records a file of Triton's cache under this key and name: the names of a bundle are a stranger's.

    Triton opens every file that a list of files (``__grp__NAME.json``) names, so these lists are never taken from a
    bundle: they are made of the names beside them.

    >>> check_cache_name("K", "__grp__add.json")
    Rejected(reason='it lists files for Triton to load, and such lists are made, not kept')
    >>> bool(check_cache_name("K", "add.cubin")), bool(check_cache_name("K", "../add.cubin"))
    (True, False)
    """
    if not _KEY.fullmatch(key):
        return Rejected("its key is none of Triton's cache")
    if name.startswith(GROUP):
        return Rejected("it lists files for Triton to load, and such lists are made, not kept")
    if name in ("", "lock") or name.startswith((".", "tmp.")) or not name.isprintable() or {"/", "\\"} & {*name}:
        return Rejected("it is no name of a file that Triton caches")
    if len(name.encode(errors="replace")) > _MOST_NAME_BYTES:
        return Rejected(f"a name has up to {_MOST_NAME_BYTES} bytes")
    return Accepted()


def key_of(artifact: Artifact) -> str:
    """The key of Triton's cache that an artifact was recorded from; "" if Silo compiled it."""
    word, _, key = artifact.job.partition(" ")
    return key if word == "triton" else ""


def file_ref(data: bytes, kind: str = FILE_KIND) -> BlobRef:
    """A blob by its bytes."""
    return blob_ref(kind, data)


@frozen
class RecordedVariant(Persisted):
    """One variant that a program used, or the generic one beside it.

    ``signature`` is the source's own, untyped. ``key`` is the folder of Triton's cache whose ``files`` it came as, by
    name; of these the file that a driver loads is the artifact's blob.
    """

    title = "a recorded variant"
    tags = MappingProxyType({"kind": "variant"})

    artifact: Artifact = field(form=value_of(Artifact))
    signature: Signature = field(form=value_of(Signature))
    reason: str = field(form=TEXT)
    key: str = field(form=TEXT)
    files: tuple[tuple[str, BlobRef], ...] = field(form=paired(value_of(BlobRef)))

    @property
    def identity(self) -> str:
        """The identity of a variant, by the facts by which Triton distinguishes its compiles."""
        return f"variant {self.key}"


@frozen
class CacheFile(Persisted):
    """A file of Triton's cache that does not belong to a known variant: its key, its name, its bytes' hash."""

    title = "a file"
    tags = MappingProxyType({"kind": "file"})

    key: str = field(form=TEXT)
    name: str = field(form=TEXT)
    ref: BlobRef = field(form=value_of(BlobRef))

    @property
    def identity(self) -> str:
        """Names the file and its content; a file with another content takes its place."""
        return f"file {self.key}/{self.name} {self.ref.sha256}"


@frozen
class TextNames(Persisted):
    """The references of a kernel's text, by the text's key. With them a kernel is found without parsing a text."""

    title = "the names in a text"
    tags = MappingProxyType({"kind": "names"})

    text: str = field(form=TEXT)
    names: Names = field(form=listed(listed(TEXT, 1)))

    @property
    def identity(self) -> str:
        """Names the text."""
        return f"names {self.text}"


Entry: TypeAlias = RecordedVariant | CacheFile | ForeignWinner | TextNames


def entry_from_json(document: JSON) -> Entry:
    """The entry in a record of a journal; raises ``ValueError`` on anything else."""
    if isinstance(document, dict):
        for cls in (ForeignWinner, TextNames, CacheFile, RecordedVariant):
            if document.get("kind") == cls.tags["kind"]:
                return cls.from_json(document)
    raise malformed("a record", document)
