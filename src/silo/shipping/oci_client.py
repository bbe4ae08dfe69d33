"""An HTTP client for one repository of a registry: its blobs and manifests, by the OCI distribution specification.

A registry is not trusted: every download must have the requested size and SHA-256, or it is rejected. A password is
sent over TLS, and only to the registry that it belongs to, or to the token server that this registry names. It is not
sent to the target of a redirection.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlencode, urlsplit

from silo.core.values import JSON, parse_json
from silo.errors import RegistryError
from silo.store.remote.http_client import Body, HttpClient, HttpFault, HttpLimits, Reply

__all__ = ["EMPTY", "INDEX", "MANIFEST", "Descriptor", "Registry", "Sink", "digest_of", "is_loopback", "read_login"]

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"

_TIMEOUT_S: Final = 30  # the most seconds for a request and its answer, and for each wait for the next bytes
_BYTES_A_SECOND: Final = 16 << 10  # the deadline of a request moves by a second for this many received bytes
# the most bytes of a manifest, an index or a token; registries have the same limit
_MAX_DOCUMENT_BYTES: Final = 4 << 20
_MAX_REDIRECTIONS: Final = 5
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class Sink(Protocol):
    """An object that downloaded bytes are written to, for example a file."""

    def write(self, data: bytes, /) -> object:
        """Writes all of ``data``."""
        ...


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The description by which a manifest refers to a blob: media type, SHA-256, size in bytes, and annotations."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str]

    @classmethod
    def of_bytes(cls, media_type: str, data: bytes, annotations: Mapping[str, str] | None = None) -> Descriptor:
        """Returns the descriptor of these bytes."""
        return cls(media_type, digest_of(data), len(data), annotations or {})

    @classmethod
    def of_file(cls, media_type: str, path: Path, annotations: Mapping[str, str]) -> Descriptor:
        """Returns the descriptor of a file's bytes."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(media_type, f"sha256:{digest}", path.stat().st_size, annotations)

    @classmethod
    def from_json(cls, data: JSON) -> Descriptor:
        """Parses a descriptor of a manifest. Raises ValueError if ``data`` isn't one; ignores unknown members."""
        match data:
            case {"mediaType": str(media_type), "digest": str(digest), "size": int(size)} if (
                re.fullmatch(r"sha256:[0-9a-f]{64}", digest) and size >= 0
            ):
                notes = data.get("annotations")
                notes = notes if isinstance(notes, dict) else {}
                texts = {name: text for name, text in notes.items() if isinstance(text, str)}
                return cls(media_type, digest, size, texts)
            case _:
                raise ValueError("a descriptor without mediaType, sha256 digest or size")

    def to_json(self) -> dict[str, JSON]:
        """Returns the descriptor in the form that manifests have."""
        data: dict[str, JSON] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        return data | ({"annotations": dict(self.annotations)} if self.annotations else {})


def digest_of(data: bytes) -> str:
    """Returns the SHA-256 of bytes in the form that registries use: ``sha256:`` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


EMPTY: Final = Descriptor.of_bytes("application/vnd.oci.empty.v1+json", b"{}")


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine. Plain HTTP is used for this machine alone.

    >>> is_loopback("localhost:5000"), is_loopback("127.0.0.1"), is_loopback("[::1]:80"), is_loopback("localhost.org")
    (True, True, True, False)
    """
    name = urlsplit(f"//{host}").hostname or ""
    return name in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", name) is not None


def read_login(path: Path, host: str) -> str:
    """Reads the login for a registry from a file of ``docker login``.

    Returns ``USER:PASSWORD`` in base64, or "" if the file has no login for the registry.

    Raises:
        RegistryError: the file cannot be read, or the password is kept by a helper program, which Silo does not run.
    """
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise RegistryError(f"{path}: logins of registries cannot be read: {error}") from None
    match config:
        case {"auths": {**logins}} if isinstance(logins.get(host), dict) and isinstance(logins[host].get("auth"), str):
            return logins[host]["auth"]
        case {"credHelpers": {**helpers}} if host in helpers:
            raise RegistryError(
                f"{path}: the login of {host} is kept by a program ({helpers[host]}); give --login FILE"
            )
        case _:
            return ""


class Registry:
    """One repository of a registry. ``login`` is ``USER:PASSWORD`` in base64, or "" for no login."""

    def __init__(self, host: str, repository: str, *, login: str = "", plain: bool = False) -> None:
        self.host = host
        self.repository = repository
        self._login = login
        scheme = "http" if plain or is_loopback(host) else "https"
        self._http = HttpClient(
            f"{scheme}://{host}/v2/{repository}",
            self._error_of,
            answer=self._authorized,
            redirections=_MAX_REDIRECTIONS,
        )

    # ---- reading ----

    def manifest(self, name: str, *, accept: str = MANIFEST) -> bytes | None:
        """Downloads the manifest that a tag or a digest names; None if it does not exist.

        Raises RegistryError if a manifest that was requested by digest has another digest.
        """
        headers = {"Accept": accept}
        data = self._document(f"manifests/{name}", headers)
        if data is not None and name.startswith("sha256:") and digest_of(data) != name:
            raise self._error(f"sent another manifest than {name}")
        return data

    def referrers(self, digest: str) -> list[Descriptor]:
        """Returns the manifests whose subject is the manifest with this digest: the manifests of its signatures."""
        data = self._document(f"referrers/{digest}", {"Accept": INDEX})
        if data is None:  # if a registry does not answer this request, clients keep the list under a tag
            data = self.manifest(digest.replace(":", "-"), accept=INDEX)
        if data is None:
            return []
        match self._parsed(data, "list of signatures"):
            case {"manifests": list(items)}:
                return [self._descriptor(item) for item in items]
            case _:
                raise self._error("sent a list of signatures that is none")

    def fetch(self, blob: Descriptor, into: Sink) -> None:
        """Downloads a blob and writes it into ``into``.

        Raises RegistryError, after bytes were written, unless they have the size and the SHA-256 of the descriptor.
        """
        hasher, size = hashlib.sha256(), 0
        with self._reply("GET", f"blobs/{blob.digest}", (200,), most=blob.size) as reply:
            for piece in reply.pieces():
                size += len(piece)
                hasher.update(piece)
                into.write(piece)
        if size != blob.size or f"sha256:{hasher.hexdigest()}" != blob.digest:
            raise self._error(f"sent other bytes than {blob.digest}")

    # ---- writing ----

    def put_blob(self, blob: Descriptor, body: Body) -> bool:
        """Uploads a blob that the repository lacks; returns whether it was uploaded."""
        with self._reply("HEAD", f"blobs/{blob.digest}", (200, 404)) as reply:
            if reply.status == 200:
                return False
        with self._reply("POST", "blobs/uploads/", (202,), headers={"Content-Length": "0"}) as begun:
            location = begun.header("Location")
        if not location:
            raise self._error("takes an upload and does not say where")
        url = self._http.joined(self._http.base, location)
        url += ("&" if urlsplit(url).query else "?") + urlencode({"digest": blob.digest})
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        with self._reply("PUT", url, (201, 204), body=body, headers=headers):
            return True

    def put_manifest(self, name: str, media_type: str, data: bytes) -> bool:
        """Writes a manifest under a tag or its digest.

        Returns whether the registry lists the new manifest among the manifests that refer to its subject.
        """
        headers = {"Content-Type": media_type, "Content-Length": str(len(data))}
        with self._reply("PUT", f"manifests/{name}", (201, 202), body=data, headers=headers) as reply:
            return bool(reply.header("OCI-Subject"))

    # ---- requests ----

    def _document(self, path: str, headers: Mapping[str, str]) -> bytes | None:
        with self._reply("GET", path, (200, 404), headers=headers, most=_MAX_DOCUMENT_BYTES) as reply:
            return None if reply.status == 404 else reply.body()

    @contextmanager
    def _reply(
        self,
        method: str,
        path: str,
        expected: tuple[int, ...],
        *,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        most: int = 0,
    ) -> Generator[Reply]:
        """Sends a request; yields the reply, whose body may have at most ``most`` bytes.

        Raises RegistryError if the status of the reply is not among the expected ones.
        """
        with self._http.request(method, path, _limits(most), body, headers) as reply:
            if reply.status not in expected:
                raise self._refused(method, self._http.url(path), reply.status)
            yield reply

    def _authorized(self, challenge: str) -> str:
        """Returns the value of the Authorization header that a challenge asks for.

        Raises RegistryError if the login does not answer the challenge.
        """
        kind = challenge.partition(" ")[0].lower()
        fields = dict(_CHALLENGE.findall(challenge))
        if kind == "basic" and self._login:
            return f"Basic {self._login}"
        if kind != "bearer" or "realm" not in fields:
            raise self._error("asks for a login, and there is none: docker login, or --login FILE")
        query = urlencode({name: fields[name] for name in ("service", "scope") if name in fields})
        url = fields["realm"] + ("&" if "?" in fields["realm"] else "?") + query
        headers = {"Authorization": f"Basic {self._login}"} if self._login else {}
        with self._http.request("GET", url, _limits(_MAX_DOCUMENT_BYTES), headers=headers, once=True) as reply:
            try:
                answer = json.loads(reply.body()) if reply.status == 200 else None
            except (ValueError, RecursionError):
                answer = None
        match answer:
            case {"token": str(token)} | {"access_token": str(token)} if token.isascii() and token.isprintable():
                return f"Bearer {token}"
            case _:
                raise self._error("gives no token for this: docker login, or --login FILE")

    def _parsed(self, data: bytes, label: str) -> JSON:
        try:
            return parse_json(data)
        except ValueError as error:
            raise self._error(f"sent a {label} that is no JSON: {error}") from None

    def _descriptor(self, data: JSON) -> Descriptor:
        try:
            return Descriptor.from_json(data)
        except ValueError as error:
            raise self._error(f"sent {error}") from None

    def _refused(self, method: str, url: str, status: int) -> RegistryError:
        why = {
            401: "the login does not do",
            403: "not allowed",
            404: "there is no such thing",
            429: "too many requests",
        }
        reason = why.get(status, http.client.responses.get(status, "no reason"))
        return self._error(f"refuses {method} {urlsplit(url).path}: {status}, {reason}")

    def _error_of(self, fault: HttpFault) -> RegistryError:
        """Converts a failed request to the error that is raised."""
        match fault.kind:
            case "address":
                return self._error(fault.words)
            case "silent":
                return self._error(
                    f"cannot be asked ({fault.request}): {fault.words}; check its address, and that it runs"
                )
            case "long":
                return self._error(f"sends more than the {fault.most} bytes that were to come")
            case "slow":
                came = f"{fault.received} bytes came of up to {fault.most}, at {_BYTES_A_SECOND} a second at least"
                return self._error(f"sends too slowly ({fault.words}): {came}")
            case "broken":
                return self._error(f"broke off after {fault.received} bytes: {fault.words}")

    def _error(self, message: str) -> RegistryError:
        return RegistryError(f"the registry {self.host} {message}")


def _limits(most: int) -> HttpLimits:
    return HttpLimits(_TIMEOUT_S, most, seconds=_TIMEOUT_S, bytes_a_second=_BYTES_A_SECOND)
