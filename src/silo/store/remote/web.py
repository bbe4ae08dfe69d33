"""Objects on a web server: WebDAV, or bazel-remote with its two folders (``cas`` and ``ac``), which cannot be listed.

The server's answer to OPTIONS decides which protocol is used.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from urllib.parse import SplitResult, quote, unquote, urlsplit
from xml.parsers import expat

from silo.errors import RemoteError
from silo.forks import Mutex
from silo.store.atomic_files import TEMPORARY_PREFIX
from silo.store.remote.http_client import HttpClient, HttpFault, HttpLimits, Reply, basic_login
from silo.store.remote.object_protocol import LIMIT_S, LISTING_S, PARTS

__all__ = ["WebObjects"]

_BAZEL = {"blobs": "cas", "jobs": "ac"}
_MOST_LISTING_BYTES = 128 << 20
_ASK = b'<?xml version="1.0"?><propfind xmlns="DAV:"><prop><resourcetype/></prop></propfind>'


class WebObjects:
    """Files below an address. A partly sent object is never visible: it gets its name once it is complete."""

    def __init__(self, split: SplitResult) -> None:
        base = f"{split.scheme}://{split.netloc.rpartition('@')[2]}{quote(unquote(split.path.rstrip('/')))}"
        self._http = HttpClient(base, _error_of, authorization=basic_login(split))
        self._lock = Mutex()
        self._dav: bool | None = None
        self._folders: set[str] = {""}

    @property
    def parts(self) -> tuple[str, ...]:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        return PARTS if self._is_dav() else tuple(_BAZEL)

    def get(self, name: str, most: int, deadline: float) -> bytes | None:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        path = self._path(name)
        if path is None:
            return None
        with self._http.request("GET", path, HttpLimits(LIMIT_S, most, deadline)) as reply:
            if reply.status == 200:
                return reply.body()
            if reply.status in (404, 410):
                return None
            raise _refusal("GET", reply)

    def put(self, name: str, data: bytes, deadline: float) -> None:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        path = self._path(name)
        if path is None:
            return
        limits = HttpLimits(LIMIT_S, deadline=deadline)
        if not self._is_dav():
            with self._http.request("PUT", path, limits, data) as reply:
                if reply.status not in (200, 201, 204, 409, 412):
                    raise _refusal("PUT", reply)
            return
        folder = path.rpartition("/")[0]
        self._make(folder, deadline)
        temporary = f"{folder}/{TEMPORARY_PREFIX}{secrets.token_hex(12)}"
        with self._http.request("PUT", temporary, limits, data) as reply:
            if reply.status not in (200, 201, 204):
                raise _refusal("PUT", reply)
        headers = {"Destination": self._http.url(path), "Overwrite": "F"}
        with self._http.request("MOVE", temporary, limits, headers=headers) as reply:
            status = reply.status
            if status not in (201, 204, 412):
                raise _refusal("MOVE", reply)
        if status == 412:  # the file exists
            with self._http.request("DELETE", temporary, limits):
                pass

    def remove(self, name: str, deadline: float) -> None:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        if not self._is_dav():
            raise RemoteError("the server is not a WebDAV server and removes nothing when asked", kind="refused")
        with self._http.request("DELETE", name, HttpLimits(LIMIT_S, deadline=deadline)) as reply:
            if reply.status not in (200, 202, 204, 404, 410):
                raise _refusal("DELETE", reply)

    def list(self, folder: str, deadline: float) -> Iterator[list[str]]:
        """See :class:`silo.store.remote.object_protocol.Objects`."""
        if not self._is_dav():
            raise RemoteError("the server is not a WebDAV server and lists nothing", kind="refused")
        waiting = [folder]
        while waiting and time.monotonic() < deadline:
            below = waiting.pop()
            files, folders = self._listed(below, deadline)
            yield [f"{below}/{name}"[len(folder) + 1 :] for name in files]
            waiting += [f"{below}/{name}" for name in folders]

    def _path(self, name: str) -> str | None:
        if self._is_dav():
            return name
        part, _, name_in_part = name.partition("/")
        return f"{_BAZEL[part]}/{name_in_part.rpartition('/')[2].removesuffix('.json')}" if part in _BAZEL else None

    def _is_dav(self) -> bool:
        with self._lock:
            if self._dav is None:
                with self._http.request("OPTIONS", "", HttpLimits(LIMIT_S, seconds=LIMIT_S)) as reply:
                    if reply.status in (401, 403) or reply.status >= 500 or 300 <= reply.status < 400:
                        raise _refusal("OPTIONS", reply)
                    self._dav = "1" in [word.strip() for word in reply.header("DAV").split(",")]
            return self._dav

    def _make(self, folder: str, deadline: float) -> None:
        if folder in self._folders:
            return
        self._make(folder.rpartition("/")[0], deadline)
        with self._http.request("MKCOL", f"{folder}/", HttpLimits(LIMIT_S, deadline=deadline)) as reply:
            if reply.status not in (200, 201, 204, 301, 405):
                raise _refusal("MKCOL", reply)
        self._folders.add(folder)

    def _listed(self, folder: str, deadline: float) -> tuple[list[str], list[str]]:
        """Returns the names of the files and of the folders directly in a folder."""
        headers = {"Depth": "1", "Content-Type": "application/xml"}
        # LISTING_S instead of LIMIT_S: the server has answered OPTIONS before, and a long listing takes a while
        limits = HttpLimits(LISTING_S, _MOST_LISTING_BYTES, deadline)
        with self._http.request("PROPFIND", f"{folder}/", limits, _ASK, headers) as reply:
            if reply.status == 404:
                return [], []
            if reply.status != 207:
                raise _refusal("PROPFIND", reply)
            reader = _Listing()
            for piece in reply.pieces():
                reader.feed(piece)
            reader.feed(b"", last=True)
        own = unquote(urlsplit(self._http.url(folder)).path).rstrip("/")
        entries = [(path.rstrip("/"), is_folder) for path, is_folder in reader.entries]
        names = [(path.rpartition("/")[2], is_folder) for path, is_folder in entries if path != own]
        shown = [(name, is_folder) for name, is_folder in names if name and not name.startswith(".")]
        return [name for name, is_folder in shown if not is_folder], [name for name, is_folder in shown if is_folder]


class _Listing:
    """Parses a multistatus document as it arrives: the paths, and whether each is a folder."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, bool]] = []
        self._text: list[str] | None = None
        self._path, self._is_folder = "", False
        self._parser = parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = self._refuse

    def feed(self, piece: bytes, *, last: bool = False) -> None:
        try:
            self._parser.Parse(piece, last)
        except expat.ExpatError as error:
            raise RemoteError(f"its listing is not XML: {error}", kind="lie") from error

    def _start(self, name: str, _: object) -> None:
        if name == "DAV: response":
            self._path, self._is_folder = "", False
        elif name == "DAV: href" and not self._path:
            self._text = []
        elif name == "DAV: collection":
            self._is_folder = True

    def _end(self, name: str) -> None:
        if name == "DAV: href" and self._text is not None:
            self._path, self._text = unquote(urlsplit("".join(self._text).strip()).path), None
        elif name == "DAV: response" and self._path:
            self.entries.append((self._path, self._is_folder))

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _refuse(self, *_: object) -> None:
        raise RemoteError("its listing declares a document type, which no listing needs", kind="lie")


def _error_of(fault: HttpFault) -> RemoteError:
    """Returns the error of a request that failed."""
    return RemoteError(fault.words, kind="lie" if fault.kind == "long" else "fault")


def _refusal(method: str, reply: Reply) -> RemoteError:
    """Returns the error for an answer with an unexpected status."""
    status = reply.status
    message = f"{method} is answered with {status} {reply.reason}"
    if 300 <= status < 400:
        return RemoteError(
            f"{message}: name the place that it leads to ({reply.header('Location')[:200]})", kind="fault"
        )
    if status == 401:
        message += ": the user and password in the address or in .netrc are missing, expired or wrong"
    return RemoteError(message, kind="refused" if (400 <= status < 500 and status != 429) or status == 507 else "fault")
