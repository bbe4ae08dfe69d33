"""The store from outside: how much it holds, pruning, clearing."""

from __future__ import annotations

from silo.errors import StoreError
from silo.settings import settings
from silo.store import usage as store

__all__ = ["clear_store", "prune_store", "store_usage"]


def store_usage() -> dict[str, int | str]:
    """Where the store is, files and bytes of each part."""
    root = settings().store_folder
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
        return store.prune(settings().store_folder, max_bytes=max_bytes).freed_bytes
    except OSError as error:
        raise StoreError(f"the store {settings().store_folder} cannot be pruned: {error}") from error


def clear_store() -> int:
    """Remove everything but trust; the bytes freed."""
    try:
        return store.clear(settings().store_folder)
    except OSError as error:
        raise StoreError(f"the store {settings().store_folder} cannot be cleared: {error}") from error
