"""``silo cache``: the size of the store, pruning, clearing; copies to and from the remote store."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from silo.core.decisions import Rejected
from silo.core.plugins import load_place
from silo.errors import StoreError
from silo.machine.process_session import session
from silo.settings import settings
from silo.store import usage as store
from silo.store.store import privacy_of, remote_link
from silo.store.upkeep import Counted, counted, losing_artifacts

if TYPE_CHECKING:
    from silo.store.remote.client import RemoteClient
    from silo.store.remote.copying import Checked, CopiedObjects

__all__ = [
    "StoreStats",
    "check_remote_store",
    "clear_store",
    "lock_frameworks_decisions",
    "prune_remote_store",
    "prune_store",
    "pull_store",
    "push_store",
    "store_stats",
    "store_usage",
    "write_frameworks_cache",
]

_PULL_LEASE_S = 3600  # seconds that the lease on the remote store lasts: copying a whole store may take long

# For each kind of source whose framework has a cache of its own: the function that writes a bundle's files to that
# cache, and the function that writes the decisions of the framework's tuners to a lock file.
_WRITERS = {"triton": "silo.kinds.triton.programs.records.cache_files:write_cache"}
_LOCKERS = {"triton": "silo.kinds.triton.programs.records.decision_sources:write_lock"}


def _own_folder() -> Path:
    """Returns the store's folder.

    Raises StoreError if other users may write to it: their links could lead to any file.
    """
    root = settings().store_folder
    private = privacy_of(root)
    if isinstance(private, Rejected):
        raise StoreError(f"the store {root} is not used, for what it holds could be somebody else's: {private.reason}")
    return root


def store_usage() -> dict[str, int | str]:
    """Returns the store's folder, and the number of files and bytes of each part of the store (blobs, records, ...)."""
    root = _own_folder()
    usage = store.usage(root)
    result: dict[str, int | str] = {"root": str(root)}
    for part in store.PARTS:
        result[part] = usage.files[part]
        result[f"{part}_bytes"] = usage.size_bytes[part]
    result["total_bytes"] = usage.total_bytes
    return result


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The code in the store by kernel, the store's limit in bytes (0: no limit), and the number of look-ups of code.

    ``total_bytes`` is the size of all files of the store on disk, to which the limit applies.
    """

    root: str
    total_bytes: int
    code_bytes: int
    records_bytes: int
    limit_bytes: int
    kernels: tuple[store.KernelUsage, ...]
    lookups: Counted


def store_stats() -> StoreStats:
    """Returns the size of the store by kernel, and how often code was found in it."""
    root = _own_folder()
    usage = store.usage(root)
    kernels = store.kernel_usage(root, losing_artifacts(session().store.records))
    code = sum(usage.size_bytes[part] for part in ("blobs", "artifacts", "jobs", "files"))
    records = usage.size_bytes["records"]
    return StoreStats(str(root), usage.total_bytes, code, records, settings().store_bytes, kernels, counted(root))


def prune_store(max_bytes: int | None, *, losers: bool = False, older_s: float = 0.0) -> store.Pruned:
    """Removes stored code in this order: code that nothing refers to, code of losing configs, the longest unused code.

    Stops when the store has ``max_bytes``; with None, removes all candidates. ``losers`` removes only code of losing
    configs. ``older_s`` removes only code that was not used for this many seconds.

    Raises:
        StoreError: the store cannot be pruned.
        ValueError: the call passes none of ``max_bytes``, ``older_s`` and ``losers``.
    """
    root = _own_folder()
    try:
        losing = losing_artifacts(session().store.records)
        return store.prune(root, store.PruneRule(max_bytes, older_s, losing, losers_alone=losers))
    except OSError as error:
        raise StoreError(f"the store {settings().store_folder} cannot be pruned: {error}") from error


def prune_remote_store(max_bytes: int | None, *, losers: bool = False, older_s: float = 0.0) -> store.Pruned:
    """Prunes the remote store (SILO_REMOTE) like :func:`prune_store`. The age of code counts from its last trial.

    Raises:
        StoreError: no remote store is set, it is read-only, it cannot list its objects, or another process uses it.
        RemoteError: the remote store does not answer.
    """
    from silo.store.remote.remote_pruning import prune_remote  # noqa: PLC0415  # few users have a remote store

    older_than_s = int(time.time() - older_s) if older_s else None
    return prune_remote(_remote(), max_bytes, losers_alone=losers, older_than_s=older_than_s)


def clear_store() -> int:
    """Removes everything from the store except the trust ledger; returns the bytes freed."""
    try:
        return store.clear(_own_folder())
    except OSError as error:
        raise StoreError(f"the store {settings().store_folder} cannot be cleared: {error}") from error


def push_store() -> list[CopiedObjects]:
    """Copies everything that the store holds and the remote store lacks to the remote store, part by part.

    Raises:
        RemoteError: the remote store cannot be reached, or rejects everything.
        StoreError: no remote store is set, or it is read-only.
    """
    from silo.store.remote import copying  # noqa: PLC0415  # few users have a remote store

    link = _remote()
    if settings().remote_mode != "write":
        raise StoreError("SILO_REMOTE_MODE=read says that nothing is sent; set it to write to push")
    return copying.push(_own_folder(), link)


def pull_store() -> list[CopiedObjects]:
    """Copies everything that the remote store holds and this store lacks to this store, part by part.

    Raises as :func:`push_store`.
    """
    from silo.store.remote import copying  # noqa: PLC0415
    from silo.store.remote.remote_pruning import holding_lease  # noqa: PLC0415
    from silo.store.remote.shared_parts import SharedRecords  # noqa: PLC0415

    link, store = _remote(), session().store
    assert isinstance(store.records, SharedRecords)
    with holding_lease(link, "pull", _PULL_LEASE_S):
        return copying.pull(_own_folder(), store.artifacts, store.records, link)


def check_remote_store() -> list[Checked]:
    """Checks every object of the remote store, part by part. Raises as :func:`push_store`."""
    from silo.store.remote import copying  # noqa: PLC0415

    return copying.check_remote(_remote())


def _remote() -> RemoteClient:
    link = remote_link(settings())
    if link is None:
        raise StoreError("there is no remote store; name one with SILO_REMOTE (file:/mnt/share/silo)")
    return link


def write_frameworks_cache(framework: str, path: Path, folder: Path) -> tuple[int, int, int]:
    """Writes a bundle's files for a framework's own cache to ``folder``.

    Returns the number of files, of bytes, and of files that were left out.

    Raises:
        BundleError: the bundle cannot be read, or the folder cannot be written.
    """
    write = cast("Callable[[Path, Path], tuple[int, int, int]]", load_place(_WRITERS[framework]))
    return write(path, folder)


def lock_frameworks_decisions(framework: str, path: Path, lock: Path) -> tuple[int, int]:
    """Adds the decisions of a framework's tuners in a recording to a lock file.

    Returns the number of added decisions, and the number of those that the file had already.

    Raises:
        BundleError: the recording cannot be read.
        LockError: the recording holds no decision, or the lock file cannot be read or written.
    """
    write = cast("Callable[[Path, Path], tuple[int, int]]", load_place(_LOCKERS[framework]))
    return write(path, lock)
