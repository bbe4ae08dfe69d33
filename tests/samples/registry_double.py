"""A registry for tests, with blobs and manifests in memory, that can answer wrongly in every way."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["RegistryDouble", "registry"]


class RegistryDouble:
    """The registry's content, its requests, and its faults: ``lies`` maps the end of a path to a wrong answer."""

    def __init__(self):
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, tuple[str, bytes]] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.sent_bytes: dict[str, int] = {}
        self.lies: dict[str, Any] = {}
        self.referrers = True
        self.login = ""  # USER:PASSWORD that clients must give; "" for none
        self.token_asked: list[str] = []
        self.host = ""

    def answer(self, handler, method, path, query, body) -> Any:
        self.asked.append((method, path, dict(handler.headers)))
        for end, lie in self.lies.items():
            if path.endswith(end):
                return lie(handler) if callable(lie) else lie
        if path == "/token":
            if handler.headers.get("Authorization") != f"Basic {self._coded}":
                return 401, {}, b""
            self.token_asked.append(query["scope"][0])
            return 200, {}, json.dumps({"token": "t0ken", "expires_in": 0.5}).encode()
        if self.login and handler.headers.get("Authorization") != "Bearer t0ken":
            challenge = f'Bearer realm="http://{self.host}/token",service="double",scope="repository:r:pull,push"'
            return 401, {"WWW-Authenticate": challenge}, b"{}"
        found = re.fullmatch(r"/v2/([a-z/]+)/(blobs|manifests|referrers)/(.*)", path)
        return self._of(found[2], found[3], method, query, body, handler) if found else (404, {}, b"")

    @property
    def _coded(self):
        return base64.b64encode(self.login.encode()).decode()

    def _of(self, kind, name, method, query, body, handler) -> Any:
        if kind == "blobs" and name == "uploads/" and method == "POST":
            return 202, {"Location": "/v2/r/blobs/uploads/1?state=x"}, b""
        if kind == "blobs" and name.startswith("uploads/") and method == "PUT":
            digest = query["digest"][0]
            if digest != f"sha256:{hashlib.sha256(body).hexdigest()}" or query["state"] != ["x"]:
                return 400, {}, b""
            self.blobs[digest] = body
            return 201, {}, b""
        if kind == "blobs":
            data = self.blobs.get(name)
            if data is not None and method == "GET":
                self.sent_bytes[name] = self.sent_bytes.get(name, 0) + len(data)
            return (404, {}, b"") if data is None else (200, {}, data)
        if kind == "manifests" and method == "PUT":
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            if name.startswith("sha256:") and name != digest:
                return 400, {}, b""
            self.manifests[name] = self.manifests[digest] = (handler.headers["Content-Type"], body)
            subject = json.loads(body).get("subject", {}).get("digest", "")
            return 201, ({"OCI-Subject": subject} if self.referrers and subject else {}), b""
        if kind == "manifests":
            found = self.manifests.get(name)
            return (404, {}, b"") if found is None else (200, {"Content-Type": found[0]}, found[1])
        if not self.referrers:
            return 404, {}, b""
        about = [
            {"mediaType": kind, "digest": digest, "size": len(data)}
            for digest, (kind, data) in list(self.manifests.items())
            if digest.startswith("sha256:") and json.loads(data).get("subject", {}).get("digest") == name
        ]
        return 200, {}, json.dumps({"schemaVersion": 2, "manifests": about}).encode()


@contextmanager
def registry():
    """Yield a registry on this machine, which ends with the block."""
    double = RegistryDouble()

    class Handler(BaseHTTPRequestHandler):
        def _any(self):
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = double.answer(self, self.command, parts.path, parse_qs(parts.query), body)
            if answer is None:
                return
            status, headers, data = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_PUT = _any  # noqa: N815

        def log_message(self, format, *words):  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    double.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
