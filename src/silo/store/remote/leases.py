"""Leases: objects of a remote store that name its users and their end times, so that nobody prunes it under a reader.

A session that reads much (``silo tune``, ``silo cache pull``) holds a lease, and so does a pruning. The lease of a
killed process ends at the time in its name.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from silo.errors import StoreError
from silo.frozen import frozen
from silo.store.remote.client import RemoteClient

__all__ = ["LEASE_S", "Lease", "LeaseHolder", "holding_lease", "leases_of", "refuse_while_used"]

LEASE_S = 900
_SKEW_S = 60  # the clocks of machines differ by less
_NAME = re.compile(r"([0-9]{10,12})-([a-z]+)-([A-Za-z0-9.]{1,60})-([0-9a-f]{12})")


@frozen
class Lease:
    """A lease, read from its name: its end in seconds of Unix time, the use, the host, and the object's name."""

    until_s: int
    use: str
    host: str
    name: str

    @property
    def text(self) -> str:
        """The lease for messages."""
        until = time.strftime("%H:%M:%S", time.gmtime(self.until_s))
        return f"silo {self.use} on {self.host}, until {until} UTC at the latest"


class LeaseHolder:
    """A lease of this process; :meth:`keep` renews it from time to time."""

    def __init__(self, client: RemoteClient, use: str, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        host = re.sub(r"[^A-Za-z0-9.]", ".", os.uname().nodename)[:60] or "unknown"
        self._rest = f"{use}-{host}-{secrets.token_hex(6)}"
        self._names: list[str] = []
        self._due_s = 0.0

    @property
    def rest(self) -> str:
        """The part of the name that all of its objects have."""
        return self._rest

    def begin(self) -> bool:
        """Puts the lease now; False if the remote store takes nothing."""
        return self._client.put_each([self._next()]) == 1

    def keep(self) -> None:
        """Renews the lease, in the background, once a third of its time has passed."""
        if self._client.sends and time.monotonic() >= self._due_s:
            self._client.send(*self._next())

    def end(self) -> None:
        """Removes the lease."""
        if self._names and self._client.sends:
            self._client.remove_each(self._names)

    def _next(self) -> tuple[str, bytes]:
        self._due_s = time.monotonic() + self._seconds / 3
        name = f"leases/{int(time.time() + self._seconds)}-{self._rest}"
        self._names.append(name)
        return name, name.encode()


@contextmanager
def holding_lease(client: RemoteClient | None, use: str, seconds: float = LEASE_S) -> Generator[LeaseHolder | None]:
    """Hold a lease for a block; None without a remote store, or with one that is only read or cannot list."""
    if client is None or not client.sends or "records" not in client.parts:
        yield None
        return
    holder = LeaseHolder(client, use, seconds)
    holder.begin()
    try:
        yield holder
    finally:
        holder.end()


def leases_of(client: RemoteClient) -> tuple[Lease, ...]:
    """The leases that have not ended, the last to end first."""
    now_s = time.time()
    found = [Lease(int(match[1]), match[2], match[3], name) for name, match in _matches(client.list("leases").names)]
    return tuple(sorted((one for one in found if one.until_s + _SKEW_S > now_s), key=lambda one: -one.until_s))


def ended_leases(client: RemoteClient) -> list[str]:
    """The objects of leases that have ended, which a pruning removes."""
    now_s = time.time()
    return [
        f"leases/{name}" for name, match in _matches(client.list("leases").names) if int(match[1]) + _SKEW_S <= now_s
    ]


def _matches(names: Sequence[str]) -> list[tuple[str, re.Match[str]]]:
    return [(name, match) for name in names if (match := _NAME.fullmatch(name)) is not None]


def refuse_while_used(client: RemoteClient, own: LeaseHolder) -> None:
    """Raises StoreError while another process holds a lease."""
    others = [one for one in leases_of(client) if not one.name.endswith(own.rest)]
    if others:
        raise StoreError(
            f"the remote store {client.place.name} is in use, so it is not pruned: {others[0].text}"
            + (f", and {len(others) - 1} more" if len(others) > 1 else "")
        )
