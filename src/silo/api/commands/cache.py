"""``silo cache``: the size of the store, pruning, clearing."""

from __future__ import annotations

from pathlib import Path

from silo.core.decisions import Rejected
from silo.errors import StoreError
from silo.settings import settings
from silo.store import usage as store
from silo.store.store import privacy_of

__all__ = ["clear_store", "prune_store", "store_usage"]


def _own_folder() -> Path:
    """The folder of the store. A link in one that others may write could lead to anything of the user's."""
    root = settings().store_folder
    private = privacy_of(root)
    if isinstance(private, Rejected):
        raise StoreError(f"the store {root} is not used, for what it holds could be somebody else's: {private.reason}")
    return root


def store_usage() -> dict[str, int | str]:
    """Where the store is, files and bytes of each part."""
    root = _own_folder()
    found = store.usage(root)
    result: dict[str, int | str] = {"root": str(root)}
    for part in store.PARTS:
        result[part] = found.files[part]
        result[f"{part}_bytes"] = found.size_bytes[part]
    result["total_bytes"] = found.total_bytes
    return result


def prune_store(max_bytes: int) -> int:
    """Remove blobs, unreferenced and oldest first, until at most ``max_bytes`` are left; the bytes freed."""
    try:
        return store.prune(_own_folder(), max_bytes=max_bytes).freed_bytes
    except OSError as error:
        raise StoreError(f"the store {settings().store_folder} cannot be pruned: {error}") from error


def clear_store() -> int:
    """Remove everything but trust; the bytes freed."""
    try:
        return store.clear(_own_folder())
    except OSError as error:
        raise StoreError(f"the store {settings().store_folder} cannot be cleared: {error}") from error
