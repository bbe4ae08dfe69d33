"""Triton's remote cache: the class that returns files of compiled kernels, over any storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from silo.kinds.triton.front.adapter.triton_toolchain import module

__all__ = ["KeepsFiles", "remote_cache"]


class KeepsFiles(Protocol):
    """A storage of files by the key and name that Triton gives them."""

    def get(self, key: str, names: Sequence[str]) -> Mapping[str, bytes]:
        """Those of the files that are kept."""
        ...

    def put(self, key: str, name: str, data: bytes) -> None:
        """Keep a file."""
        ...


def remote_cache(keeper: KeepsFiles) -> type[Any]:
    """The class to name in ``TRITON_REMOTE_CACHE_BACKEND``: Triton makes an object of it for each key."""
    base: Any = module("triton.runtime.cache").RemoteCacheBackend

    class Backend(base):
        """One key of Triton's cache."""

        def __init__(self, key: str) -> None:
            base.__init__(self, key)
            self._key = key

        def get(self, filenames: Sequence[str]) -> dict[str, bytes]:
            """The files of these names that are kept."""
            return dict(keeper.get(self._key, list(filenames)))

        def put(self, filename: str, data: bytes | str) -> None:
            """Keep one file."""
            keeper.put(self._key, filename, data.encode() if isinstance(data, str) else bytes(data))

    return Backend
