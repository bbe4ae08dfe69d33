"""A small web server of the standard library: WebDAV over a dictionary, or bazel-remote's folders, with faults."""

# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import contextlib
import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.handle_one
        raise AttributeError(name)

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_one(self):
        double = self.server.double
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        with double.lock:
            double.requests.append((self.command, path))
        if double.fault is not None and double.fault(self, path):
            return
        time.sleep(double.latency_s)
        with double.lock:
            getattr(self, f"on_{self.command.lower()}")(double, path, body)

    def on_options(self, double, path, body):
        self.answer(200, **({"DAV": "1, 2"} if double.dav else {}))

    def on_get(self, double, path, body):
        data = double.files.get(path)
        self.answer(404) if data is None else self.answer(200, data)

    def on_put(self, double, path, body):
        if not double.writable:
            return self.answer(403)
        if double.dav and path.rpartition("/")[0] not in double.folders:
            return self.answer(409)
        if double.dav and self.headers.get("If-None-Match") == "*" and path in double.files:
            return self.answer(412)
        double.files[path] = body
        return self.answer(201)

    def on_mkcol(self, double, path, body):
        path = path.rstrip("/")
        if not double.writable:
            return self.answer(403)
        if path in double.folders:
            return self.answer(405)
        if path.rpartition("/")[0] not in double.folders:
            return self.answer(409)
        double.folders.add(path)
        return self.answer(201)

    def on_move(self, double, path, body):
        there = urlsplit(self.headers["Destination"]).path
        if there in double.files and self.headers.get("Overwrite") == "F":
            return self.answer(412)
        double.files[there] = double.files.pop(path)
        return self.answer(201)

    def on_delete(self, double, path, body):
        self.answer(204 if double.files.pop(path, None) is not None else 404)

    def on_propfind(self, double, path, body):
        path = path.rstrip("/")
        if not double.dav:
            return self.answer(405)
        if path not in double.folders:
            return self.answer(404)
        here = [path + "/"]
        here += [folder + "/" for folder in double.folders if folder.rpartition("/")[0] == path and folder != path]
        here += [name for name in double.files if name.rpartition("/")[0] == path]
        rows = "".join(
            f"<D:response><D:href>{name}</D:href><D:propstat><D:prop><D:resourcetype>"
            f"{'<D:collection/>' if name.endswith('/') else ''}</D:resourcetype></D:prop></D:propstat></D:response>"
            for name in here
        )
        text = f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{rows}</D:multistatus>'
        return self.answer(207, text.encode(), Content_Type="application/xml")


class Double:
    """The server's content and behaviour. ``fault`` is called first; it may answer a request itself, or ignore it."""

    def __init__(self, *, dav=True):
        self.dav = dav
        self.writable = True
        self.latency_s = 0.0
        self.fault = None
        self.lock = threading.RLock()
        self.files = {}
        self.folders = {"", "/cache"}
        self.requests = []
        self.address = ""


class _Server(ThreadingHTTPServer):
    """A server that closes the connections that clients keep open.

    Thus many servers in a process do not use up its files.
    """

    daemon_threads = True

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._open = set()

    def process_request(self, request, client_address):
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self):
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def web_double(**options):
    """Yield a running server, whose address is ``double.address``, until the block ends."""
    server = _Server(("127.0.0.1", 0), Handler)
    server.double = double = Double(**options)
    double.address = f"http://127.0.0.1:{server.server_port}/cache"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()
        server.hang_up()
        thread.join()
