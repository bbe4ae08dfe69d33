"""Objects in object storage (``s3://``, ``gs://``, ``az://``), by the package obstore, which finds the credentials."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any

from silo.errors import RemoteError
from silo.store.remote.object_protocol import LIMIT_S, LISTING_S, MOST_BLOB_BYTES, PARTS, limit_s

__all__ = ["CloudObjects"]

_PAGE = 1000


class CloudObjects:
    """A bucket, or the objects in it whose names begin with a prefix."""

    parts = PARTS

    def __init__(self, address: str) -> None:
        try:
            # The package is optional, so its types may be missing too.
            obstore: Any = import_module("obstore")
            exceptions: Any = import_module("obstore.exceptions")
            store: Any = import_module("obstore.store")
        except ImportError as error:
            raise RemoteError(
                f"{address.partition(':')[0]}:// needs the package obstore: pip install 'kernel-silo[remote]'",
                kind="package",
            ) from error
        self._obstore = obstore
        self._refusals: tuple[type[BaseException], ...] = (
            exceptions.PermissionDeniedError,
            exceptions.UnauthenticatedError,
        )
        self._exists_error: type[BaseException] = exceptions.AlreadyExistsError
        self._unable: tuple[type[BaseException], ...] = (exceptions.NotSupportedError, NotImplementedError)
        self._faults: type[BaseException] = exceptions.BaseError
        self._if_absent = {"mode": "create"}  # becomes empty if the service does not support it

        def opened(whole_s: float) -> object:
            return store.from_url(
                address,
                client_options={
                    "connect_timeout": timedelta(seconds=LIMIT_S),
                    # The time from connecting to the last byte of the answer. The library cancels longer requests.
                    "timeout": timedelta(seconds=whole_s),
                    # Allows an endpoint with http:// that the user named; any other endpoint has https.
                    "allow_http": True,
                },
                retry_config={"max_retries": 1, "retry_timeout": timedelta(seconds=LIMIT_S)},
            )

        try:
            # Time limits belong to a client, not to a request, so entries and blobs have a client each.
            self._store: Any = opened(LISTING_S)
            self._blobs: Any = opened(limit_s(MOST_BLOB_BYTES))
        except (self._faults, ValueError) as error:
            raise RemoteError(_first_line(error), kind="fault") from error

    def _client_of(self, name: str) -> object:
        return self._blobs if name.startswith("blobs/") else self._store

    def get(self, name: str, most: int, deadline: float) -> bytes | None:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        try:
            answer = self._obstore.get(self._client_of(name), name)
            size = answer.meta["size"]
            if size > most:
                raise RemoteError(f"{name} has {size} bytes, where {most} are the most", kind="lie")
            pieces: list[bytes] = []
            got = 0
            for piece in answer.stream(min_chunk_size=1 << 20):
                got += len(piece)
                if got > most or time.monotonic() > deadline:
                    raise RemoteError(f"{name} is longer than it says, or comes too slowly", kind="lie")
                pieces.append(bytes(piece))
            return b"".join(pieces)
        except FileNotFoundError:
            return None
        except (self._faults, OSError) as error:
            raise self._fault(error) from error

    def put(self, name: str, data: bytes, deadline: float) -> None:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        try:
            self._obstore.put(self._client_of(name), name, data, use_multipart=False, **self._if_absent)
        except self._unable:
            if not self._if_absent:
                raise RemoteError("it cannot put objects", kind="refused") from None
            self._if_absent = {}
            self.put(name, data, deadline)
        except self._exists_error:
            return
        except (self._faults, OSError) as error:
            raise self._fault(error) from error

    def remove(self, name: str, deadline: float) -> None:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        del deadline  # the client has its own limit
        try:
            self._obstore.delete(self._client_of(name), name)
        except FileNotFoundError:
            return
        except (self._faults, OSError) as error:
            raise self._fault(error) from error

    def list(self, folder: str, deadline: float) -> Iterator[list[str]]:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        try:
            for page in self._obstore.list(self._store, f"{folder}/", chunk_size=_PAGE):
                yield [str(item["path"])[len(folder) + 1 :] for item in page]
                if time.monotonic() > deadline:
                    return
        except (self._faults, OSError) as error:
            raise self._fault(error) from error

    def _fault(self, error: BaseException) -> RemoteError:
        kind = "refused" if isinstance(error, self._refusals) else "fault"
        return RemoteError(_first_line(error), kind=kind)


def _first_line(error: BaseException) -> str:
    """Returns the service's message, without the trace that the package adds."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:400]
