"""Blobs of several machines: local blobs first; fetched ones are verified and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from silo.store.artifacts import Blobs
from silo.store.remote.client import RemoteClient
from silo.store.remote.object_protocol import MOST_BLOB_BYTES, blob_name

__all__ = ["SharedBlobs"]


class SharedBlobs:
    """The blobs of this machine, and the remote store's for those that are missing."""

    def __init__(self, local: Blobs, client: RemoteClient) -> None:
        self._local = local
        self._client = client
        self._absent: set[str] = set()  # also in the remote store, as far as this process knows

    def put(self, data: bytes) -> str:
        """Keep ``data`` here, and send it; its sha256 in hex."""
        sha256 = self._local.put(data)
        if len(data) <= MOST_BLOB_BYTES:
            self._client.send(blob_name(sha256), bytes(data))
        return sha256

    def get(self, sha256: str) -> bytes | None:
        """The verified bytes; None if neither store has them."""
        data = self._local.get(sha256)
        if data is None and self._fetched(sha256, MOST_BLOB_BYTES):
            data = self._local.get(sha256)
        return data

    def map(self, sha256: str) -> memoryview | None:
        """A read-only view of the verified bytes; None if neither store has them."""
        view = self._local.map(sha256)
        if view is None and self._fetched(sha256, MOST_BLOB_BYTES):
            view = self._local.map(sha256)
        return view

    def holds(self, sha256: str, size: int) -> bool:
        """Whether a blob of this name and size is here now."""
        return self._local.holds(sha256, size) or self._fetched(sha256, size)

    def bring(self, blobs: Iterable[tuple[str, int]]) -> None:
        """Fetch the blobs that are not here, each with its size, side by side."""
        missing = [(sha256, size) for sha256, size in dict(blobs).items() if not self._local.holds(sha256, size)]
        for sha256, size in missing if len(missing) > 1 else ():
            if size <= MOST_BLOB_BYTES and sha256 not in self._absent:
                self._client.expect([blob_name(sha256)], size)
        for sha256, size in missing:
            self._fetched(sha256, size)

    def _fetched(self, sha256: str, most: int) -> bool:
        if most > MOST_BLOB_BYTES or self._client.off or sha256 in self._absent:
            return False
        name = blob_name(sha256)
        data = self._client.get(name, most)
        if data is None:
            self._absent.add(sha256)
            return False
        if hashlib.sha256(data).hexdigest() != sha256:
            self._absent.add(sha256)
            self._client.lie(name, "its sha256 differs")
            return False
        self._local.put(data)
        self._client.knows(name)
        return True
