"""The address of a remote store (``SILO_REMOTE``): parsing it, and showing it without its password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from silo.errors import SettingsError
from silo.frozen import field, frozen
from silo.store.remote.object_protocol import Objects
from silo.variables import REMOTE_SCHEMES

__all__ = ["RemoteAddress"]

_FORMS = "it begins with file:, https://, s3://, gs://, az://, redis:// or rediss://"


@frozen
class RemoteAddress:
    """The address of a remote store.

    ``name`` is the address without user and password. Messages show the name, and the trust ledger records trust in a
    remote store under it.
    """

    name: str
    address: str = field(repr=False)

    @classmethod
    def parse(cls, address: str) -> RemoteAddress:
        """Parses an address. Raises ``SettingsError``, which names the fault.

        >>> RemoteAddress.parse("https://me:secret@cache.example/silo/").name
        'https://cache.example/silo'
        >>> RemoteAddress.parse("file:///mnt/share").name
        'file:/mnt/share'
        """
        address = address.strip()
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in address):
            raise SettingsError("SILO_REMOTE has a control character in it")
        scheme, _, after_scheme = address.partition(":")
        if scheme.lower() not in REMOTE_SCHEMES:
            raise SettingsError(f"no remote store has an address like {address[:40]!r}; {_FORMS}")
        if scheme.lower() == "file":
            return cls(f"file:{_absolute(after_scheme)}", address)
        try:
            split = urlsplit(address)
            _ = split.port
        except ValueError as error:
            raise SettingsError(f"SILO_REMOTE is no address: {error}") from None
        if " " in address:
            raise SettingsError("SILO_REMOTE has a space in it; write %20")
        if split.fragment or split.query:
            raise SettingsError("SILO_REMOTE has no part after '?' or '#'")
        path = split.path.rstrip("/")
        if not split.hostname:
            raise SettingsError(f"SILO_REMOTE={split.scheme}:// needs a host or a bucket behind it")
        host = f"[{split.hostname}]" if ":" in split.hostname else split.hostname
        port = "" if split.port is None else f":{split.port}"
        return cls(f"{split.scheme}://{host}{port}{path}", address)

    @property
    def split(self) -> SplitResult:
        """The parts of the whole address, with user and password."""
        return urlsplit(self.address)

    @property
    def scheme(self) -> str:
        """The scheme: ``file``, ``https``, ..."""
        return self.name.partition(":")[0]

    @property
    def folder(self) -> Path:
        """The folder that a ``file:`` address names."""
        return Path(self.name.removeprefix("file:"))

    @property
    def forks(self) -> bool:
        """Whether a forked child may open a connection of its own if the parent has used one."""
        # the library for these services has threads, which a forked child lacks
        return self.scheme not in ("s3", "gs", "az")

    def open(self) -> Objects:
        """Makes a client for the address, without sending anything. Raises ``RemoteError`` if a package is missing."""
        scheme = self.scheme
        if scheme == "file":
            from silo.store.remote.folder_objects import FolderObjects  # noqa: PLC0415  # each kind of client imports other packages

            return FolderObjects(self.folder)
        if scheme in ("http", "https"):
            from silo.store.remote.web import WebObjects  # noqa: PLC0415

            return WebObjects(self.split)
        if scheme in ("redis", "rediss"):
            from silo.store.remote.redis_server import RedisObjects  # noqa: PLC0415

            return RedisObjects(self.split)
        from silo.store.remote.cloud import CloudObjects  # noqa: PLC0415

        return CloudObjects(self.address)


def _absolute(written_path: str) -> str:
    """Returns the path of a ``file:`` address exactly as it is written, after two slashes or none."""
    path = (
        written_path.removeprefix("//localhost").removeprefix("//") if written_path.startswith("//") else written_path
    )
    if not path.startswith("/"):
        raise SettingsError(
            "SILO_REMOTE=file: is followed by an absolute path (file:/mnt/share/silo); a folder of another machine "
            "must be mounted here"
        )
    return path.rstrip("/") or "/"
